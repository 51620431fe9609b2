package controlplane_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// temporary is a resource with a TTL.
func temporary(t testing.TB, version, name, content string, pairs ...string) *controlplane.Resource {
	t.Helper()
	r, err := controlplane.NewResource(&discoverypb.Resource{
		Name: name, Version: version, Resource: variant(eds, content), DynamicParameters: parameters(pairs...),
		Ttl: durationpb.New(time.Minute), Aliases: []string{"alias of " + name},
	})
	xdstest.NoError(t, err)
	return r
}

// Envoy, xDS protocol, "TTL": a heartbeat has the name, the version and the TTL, and no resource. It is
// sent to those who have the resource.
func TestTx_RenewOverDelta(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	src := newSource(t, s.store, eds)
	c := s.openTwinDelta(t)
	c.send(&discoverypb.DeltaDiscoveryRequest{TypeUrl: eds, ResourceNamesSubscribe: []string{"a", "b"}})
	d := src.wantBegun("a", "b")
	renew := func(tx *controlplane.Tx) {
		tx.Renew(eds, "a", nil)
		tx.Renew(eds, "b", nil)
		tx.Renew(eds, "unknown", nil)
		tx.Renew(eds, "a", parameters("no", "such"))
	}
	src.update(renew) // nothing is there yet
	src.answer(d[0], temporary(t, "7", "a", "A"))
	r := c.recv().GetResources()
	if len(r) != 1 || r[0].GetTtl().AsDuration() != time.Minute || r[0].GetVersion() != "7" || r[0].GetAliases()[0] != "alias of a" {
		t.Errorf("got %v", r)
	}
	src.update(renew)
	resp := c.recv()
	r = resp.GetResources()
	if len(r) != 1 || r[0].GetName() != "a" || r[0].GetTtl().AsDuration() != time.Minute || r[0].GetVersion() != "7" || r[0].GetResource() != nil || resp.GetNonce() == "" {
		t.Errorf("got %v", resp)
	}
	// With a change the resource is sent whole, and once.
	src.update(func(tx *controlplane.Tx) {
		tx.Answer(d[0], temporary(t, "8", "a", "A2"))
		tx.Answer(d[1], given(t, "1", "b", variant(eds, "B"))) // no TTL
		renew(tx)
	})
	if r = c.recv().GetResources(); len(r) != 2 || string(r[0].GetResource().GetValue()) != "A2" || string(r[1].GetResource().GetValue()) != "B" {
		t.Errorf("got %v", r)
	}
}

func TestNewResourceFaults(t *testing.T) {
	t.Parallel()
	body := variant(eds, "")
	for want, m := range map[string]*discoverypb.Resource{
		"the name is empty":       {Resource: body},
		"there is no resource":    {Name: "a"},
		"its Any has no type URL": {Name: "a", Resource: &anypb.Any{}},
		"glob collection":         {Name: "xdstp://a/t/*", Resource: body},
		"reserved":                {Name: "*", Resource: body},
		"duration":                {Name: "a", Resource: body, Ttl: &durationpb.Duration{Nanos: -1, Seconds: 1}},
		"UTF-8":                   {Name: "a", Resource: body, DynamicParameters: parameters("k", "\xff")},
	} {
		if _, err := controlplane.NewResource(m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", m, err, want)
		}
	}
}

func TestTx_AnswerFaults(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	src := newSource(t, s.store, eds, cds)
	c := s.openDelta(t)
	c.subscribe(eds, "a")
	c.subscribe(cds, "*")
	d := src.wantBegun("*", "a")
	for want, answer := range map[string]func(*controlplane.Tx){
		"the demand is for a collection": func(tx *controlplane.Tx) { tx.Answer(d[0], given(t, "", "x", cluster("x"))) },
		"the demand is for a " + eds:     func(tx *controlplane.Tx) { tx.Answer(d[1], given(t, "", "a", cluster("a"))) },
		`the resource has the name "b"`:  func(tx *controlplane.Tx) { tx.Answer(d[1], given(t, "", "b", assignment("b"))) },
		"the status is OK":               func(tx *controlplane.Tx) { tx.AnswerError(d[1], nil) },
		`renew a variant of "a"`:         func(tx *controlplane.Tx) { tx.Renew(eds, "a", parameters("k", "\xff")) },
	} {
		if _, err := s.store.Update(answer); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	// A demand of another store is ignored.
	if _, err := controlplane.NewStore().Update(func(tx *controlplane.Tx) { tx.Answer(d[1], nil) }); err != nil {
		t.Error(err)
	}
	c.fence()
}
