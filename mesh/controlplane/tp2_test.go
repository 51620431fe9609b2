package controlplane_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/mesh/controlplane"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// What TP2 asks of a server beside its worked examples.

var unconstrained dynparam.Constraints

// "API Changes", Resource: the server returns the parameters of each resource. A
// client that sends no locators is sent what it was before there were any.
func TestTP2_ParametersOnTheWire(t *testing.T) {
	eachVariant(t, controlplane.Options{}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		s.setVariant(t, cds, "c", "content", "env", "prod", "version", "v1")
		w := open("n").wire
		w.request(cds, nil, &discoverypb.ResourceLocator{Name: "c"})
		want := &discoverypb.Resource{
			Name: "c", Version: s.store.Variants(cds, "c")[0].Version(), Resource: variant(cds, "content"),
			DynamicParameters: parameters("env", "prod", "version", "v1"),
		}
		if got := w.receive().resources; len(got) != 1 || !proto.Equal(got[0], want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

func TestTP2_NothingNewForClientsWithoutLocators(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.setVariant(t, cds, "c", "content", "env", "prod", "version", "v1")
	plain := s.openDelta(t)
	plain.subscribe(cds, "c")
	if r := plain.next().message.(*deltaResponse).GetResources()[0]; r.GetResourceName() != nil || len(r.ProtoReflect().GetUnknown()) > 0 {
		t.Errorf("a client without locators was sent %v", r)
	}
	bare := s.open(t)
	bare.subscribe(cds, "c")
	if r := bare.next().message.(*sotwResponse).GetResources()[0]; r.GetTypeUrl() != cds {
		t.Errorf("a client without locators was sent a %s", r.GetTypeUrl())
	}
}

func isDelta(c *tp2Client) bool { _, ok := c.wire.(*tp2Delta); return ok }

// A locator that cannot be used is an error of this subscription, and no other.
func TestTP2_UnusableConstraints(t *testing.T) {
	bad := &discoverypb.ResourceLocator{Name: "r", DynamicParameterConstraints: &discoverypb.DynamicParameterConstraints{
		KeyConstraints: map[string]*discoverypb.DynamicParameterConstraints_KeyConstraints{"env": {}},
	}}
	good := ask{name: "r", constraints: exactly(t, "env", "prod")}.message()
	eachVariant(t, controlplane.Options{}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		s.setVariant(t, rds, "r", "prod", "env", "prod")
		w := open("n").wire
		w.request(rds, nil, bad, good)
		r := w.receive()
		if len(r.resources) != 1 || len(r.errors) != 1 {
			t.Fatalf("%d resources, errors %v", len(r.resources), r.errors)
		}
		detail := r.errors[0].GetErrorDetail()
		if !proto.Equal(r.errors[0].GetResourceName().GetDynamicParameterConstraints(), bad.GetDynamicParameterConstraints()) ||
			codes.Code(detail.GetCode()) != codes.InvalidArgument || !strings.Contains(detail.GetMessage(), `key_constraints["env"]`) {
			t.Errorf("the error is %v", r.errors[0])
		}
	})
}
