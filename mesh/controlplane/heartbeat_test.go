package controlplane_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/mesh/controlplane"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

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
		"an alias is not valid":   {Name: "a", Resource: body, Aliases: []string{"b", "\xff"}},
	} {
		if _, err := controlplane.NewResource(m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", m, err, want)
		}
	}
}

func TestTx_AnswerFaults(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	begun := make(chan *controlplane.Demand, 2)
	for _, typeURL := range []string{eds, cds} {
		s.store.OnDemand(typeURL, func(all, _ []*controlplane.Demand) {
			for _, d := range all {
				begun <- d
			}
		})
	}
	c := s.openDelta(t)
	c.subscribe(eds, "a")
	a := receive(t, begun)
	c.subscribe(cds, "*")
	all := receive(t, begun)
	for want, answer := range map[string]func(*controlplane.Tx){
		"the demand is for a collection": func(tx *controlplane.Tx) { tx.Answer(all, given(t, "", "x", cluster("x"))) },
		"the demand is for a " + eds:     func(tx *controlplane.Tx) { tx.Answer(a, given(t, "", "a", cluster("a"))) },
		`the resource has the name "b"`:  func(tx *controlplane.Tx) { tx.Answer(a, given(t, "", "b", assignment("b"))) },
		"the status is OK":               func(tx *controlplane.Tx) { tx.AnswerError(a, nil) },
		`renew a variant of "a"`:         func(tx *controlplane.Tx) { tx.Renew(eds, "a", parameters("k", "\xff")) },
	} {
		if _, err := s.store.Update(answer); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	// A demand of another store is ignored.
	if _, err := controlplane.NewStore().Update(func(tx *controlplane.Tx) { tx.Answer(a, nil) }); err != nil {
		t.Error(err)
	}
	c.fence()
}
