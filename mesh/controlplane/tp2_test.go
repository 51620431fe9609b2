package controlplane_test

import (
	"strings"
	"testing"

	publishedpb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// xRFC TP2, "API Changes", Resource: the server returns the parameters of each resource. A locator that cannot be used is an error of
// this subscription, and no other.
func TestTP2_OnTheWire(t *testing.T) {
	t.Parallel()
	bad := &discoverypb.ResourceLocator{Name: "r", DynamicParameterConstraints: &discoverypb.DynamicParameterConstraints{
		KeyConstraints: map[string]*discoverypb.DynamicParameterConstraints_KeyConstraints{"env": {}},
	}}
	locators := []*discoverypb.ResourceLocator{bad, {Name: "r", DynamicParameterConstraints: xdstest.Constraints("env=prod").ToProto()}}
	s := startServer(t)
	s.setVariant(t, rds, "r", "content", "env", "prod", "version", "v1")
	whole, difference := s.open(t), s.openDelta(t)
	for _, c := range []*client{whole, difference} {
		c.request(request{typeURL: rds, locators: locators, names: []string{"to be ignored"}})
	}
	bySotW, byDelta := whole.next(), difference.next()
	wrapped := new(discoverypb.Resource)
	xdstest.NoError(t, proto.Unmarshal(bySotW.packed[0].GetValue(), wrapped))
	want := &discoverypb.Resource{
		Name: "r", Version: s.store.Variants(rds, "r")[0].Version(), Resource: variant(rds, "content"),
		DynamicParameters: parameters("env", "prod", "version", "v1"),
	}
	for _, got := range []*discoverypb.Resource{wrapped, byDelta.resources[0]} {
		if !proto.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	for _, errs := range [][]*discoverypb.ResourceError{bySotW.errors, byDelta.errors} {
		if len(errs) != 1 || !proto.Equal(errs[0].GetResourceName().GetDynamicParameterConstraints(), bad.GetDynamicParameterConstraints()) ||
			codes.Code(errs[0].GetErrorDetail().GetCode()) != codes.InvalidArgument || !strings.Contains(errs[0].GetErrorDetail().GetMessage(), `key_constraints["env"]`) {
			t.Errorf("the errors are %v", errs)
		}
	}
}

// A client that sends no locators is sent what it was before there were any.
func TestTP2_NothingNewForClientsWithoutLocators(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.setVariant(t, cds, "c", "content", "env", "prod", "version", "v1")
	plain := s.openDelta(t)
	plain.subscribe(cds, "c")
	data, err := proto.Marshal(plain.next().resources[0])
	xdstest.NoError(t, err)
	r := new(publishedpb.Resource)
	if xdstest.NoError(t, proto.Unmarshal(data, r)); r.GetResourceName() != nil || len(r.ProtoReflect().GetUnknown()) > 0 {
		t.Errorf("a client without locators was sent %v", r)
	}
	bare := s.open(t)
	bare.subscribe(cds, "c")
	if r := bare.next().packed[0]; r.GetTypeUrl() != cds {
		t.Errorf("a client without locators was sent a %s", r.GetTypeUrl())
	}
}
