package resolver

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/resolver/internal/lookup"
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

// Computing endpoints costs time for each name: answers for a cluster with many names are
// batched, except the first and the last.
func TestAnswersForManyNamesAreBatched(t *testing.T) {
	t.Parallel()
	const n = 600
	f := routed(t, "a")
	many := make([]string, n)
	for i := range many {
		many[i] = fmt.Sprintf("many%d.fake:80", i)
	}
	changes := func() int {
		f.graph.mu.Lock()
		defer f.graph.mu.Unlock()
		return f.changes
	}
	f.answer("Cluster a", inlined("a", strictDNS, many...))
	before, begin := changes(), time.Now()
	names.answer(t, many[0], "10.0.0.1:80")
	xdstest.Equal(t, "changes made by the first answer", 1, changes()-before)
	for i, name := range many[1:] {
		names.answer(t, name, fmt.Sprintf("10.1.%d.%d:80", i/250, i%250))
	}
	const spacing = n * 100 * time.Microsecond
	if got, most := changes()-before, 2+int(time.Since(begin)/spacing); got > most {
		t.Errorf("%d answers made %d changes, want no more than %d", n, got, most)
	}
	a, _ := f.graph.snapshot().clusters.Get("a")
	xdstest.Equal(t, "after the last answer: endpoints",
		n, len(a.Endpoints.Localities[0].Endpoints))
}

// An answer that arrives as the time between two computations ends computes the endpoints itself. The timer, which waits
// for the graph meanwhile, does not end the time that begins then.
func TestAnswersAreBatchedAfterALateTimer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var changes atomic.Int32
		c := inlined("a", strictDNS)
		m := &cluster{graph: &graph{changed: func() { changes.Add(1) }}, cds: watch[*xdsresource.Cluster]{last: c}, state: new(balancer.ClusterState)}
		d := &dnsEndpoints{owner: m, cluster: c, names: map[string]*dnsName{}}
		m.dns = d
		for i := range 2 * fewNames {
			name := fmt.Sprintf("late%d.fake:80", i)
			c.Inline.Localities[0].Endpoints = append(c.Inline.Localities[0].Endpoints, xdsresource.Endpoint{Address: name, Weight: 1})
			d.names[name] = new(dnsName)
			d.silent++
		}
		answered := 0
		answer := func() {
			d.answered(d.names[fmt.Sprintf("late%d.fake:80", answered)], lookup.Result{Addresses: []string{fmt.Sprintf("10.0.0.%d:80", answered)}})
			answered++
		}
		expect := func(when string, want int32) {
			t.Helper()
			xdstest.Equal(t, "changes "+when, want, changes.Load())
		}
		m.graph.mu.Lock()
		answer()
		answer()
		expect("by the first answer", 1)
		time.Sleep(d.spacing()) // The timer waits for the graph.
		answer()
		answer()
		m.graph.mu.Unlock()
		synctest.Wait()
		expect("by an answer after the time", 2)
		time.Sleep(d.spacing())
		synctest.Wait()
		expect("by the next timer", 3)
	})
}
