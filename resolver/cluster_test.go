package resolver

import (
	"fmt"
	"testing"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// inlined is a cluster with a load_assignment of one locality.
func inlined(name string, kind xdsresource.ClusterKind, addresses ...string) *xdsresource.Cluster {
	l := xdsresource.Locality{Weight: 1}
	for _, a := range addresses {
		l.Endpoints = append(l.Endpoints, xdsresource.Endpoint{Address: a, Weight: 1})
	}
	return &xdsresource.Cluster{
		Name: name, Kind: kind, LBPolicy: "round_robin",
		Inline: &xdsresource.Endpoints{Name: name, Localities: []xdsresource.Locality{l}},
	}
}

const (
	static     = xdsresource.ClusterStatic
	strictDNS  = xdsresource.ClusterStrictDNS
	logicalDNS = xdsresource.ClusterLogicalDNS
)

// routed is a graph that routes to clusters without an answer yet.
func routed(t *testing.T, clusters ...string) *fixture {
	f := newFixture(t)
	f.route(clusters...)
	f.see()
	t.Cleanup(f.graph.close)
	return f
}

// Computing endpoints costs time for each name: answers for a cluster with many names share what is computed.
func TestAnswersForManyNamesAreBatched(t *testing.T) {
	t.Parallel()
	const n = 600
	f := routed(t, "a")
	many := make([]string, n)
	for i := range many {
		many[i] = fmt.Sprintf("many%d.fake:80", i)
	}
	changes := make(chan int, n)
	f.graph.changed = func() { changes <- 1 }
	f.answer("Cluster a", inlined("a", strictDNS, many...))
	for i, name := range many {
		names.answer(t, name, fmt.Sprintf("10.1.%d.%d:80", i/250, i%250))
	}
	<-changes // of the Cluster
	<-changes
	xdstest.Equal(t, "further changes", 0, len(changes))
	a, _ := f.graph.snapshot(false).clusters.Get("a")
	xdstest.Equal(t, "endpoints", n, len(a.Endpoints.Localities[0].Endpoints))
}
