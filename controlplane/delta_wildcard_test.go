package controlplane_test

import (
	"testing"
)

// Envoy, "How the client specifies what resources to return", the example for
// the incremental variant, request by request.
func TestDelta_LegacyWildcardLastsUntilItIsUnsubscribed(t *testing.T) {
	s, c := startDelta(t, cluster("A"), cluster("B"))

	c.subscribe(cds)
	c.ack(c.want(cds, "A", "B"))
	c.subscribe(cds, "A")
	c.ack(c.want(cds, "A"))
	s.set(t, changed("B", "1"))
	c.ack(c.want(cds, "B"))

	c.unsubscribe(cds, "*")
	c.fence()
	s.set(t, changed("A", "2"), changed("B", "2"))
	c.ack(c.want(cds, "A"))

	c.unsubscribe(cds, "A")
	c.subscribe(cds) // no wildcard any more
	c.fence()
	s.set(t, changed("A", "3"), changed("B", "3"))
	c.fence()
	c.subscribe(cds, "*")
	c.want(cds, "A", "B")
}

func TestDelta_LegacyWildcardEndsWithoutAName(t *testing.T) {
	s, c := startDelta(t, cluster("A"))
	c.subscribe(cds)
	resp := c.want(cds, "A")
	c.unsubscribe(cds, "*")
	c.ack(resp) // has no names, and does not bring the wildcard back
	c.fence()
	s.set(t, changed("A", "1"))
	c.fence()
}

func TestDelta_WildcardAndNameSendOneCopy(t *testing.T) {
	s, c := startDelta(t, cluster("a"), cluster("b"))
	c.subscribe(cds, "*", "a")
	c.want(cds, "a", "b")
	s.set(t, changed("a", "new"))
	c.want(cds, "a")
	s.delete(t, cds, "a")
	c.want(cds, "-a")
	c.fence()
}

// Envoy, "Incremental xDS": initial_resource_versions after a reconnect.
func TestDelta_Reconnect(t *testing.T) {
	t.Parallel()
	const (
		collection = "xdstp://auth/envoy.config.cluster.v3.Cluster/dir/"
		elsewhere  = "xdstp://auth/envoy.config.cluster.v3.Cluster/other/x"
	)
	tests := []struct {
		name      string
		subscribe []string
		prefix    string // of every name
		stray     string // what the client has, too, and does not subscribe to
		then      []string
	}{
		{"by name", []string{"same", "changed", "gone", "new"}, "", "stray", []string{"changed", "-gone", "new"}},
		{"legacy wildcard", nil, "", "", []string{"changed", "-gone", "new"}},
		{"star", []string{"*"}, "", "", []string{"changed", "-gone", "new"}},
		{"star and names", []string{"*", "same", "gone", "never"}, "", "", []string{"changed", "-gone", "new", "-never"}},
		{"only some", []string{"same", "gone"}, "", "stray", []string{"-gone"}},
		{"glob", []string{collection + "*"}, collection, elsewhere, []string{collection + "changed", "-" + collection + "gone", collection + "new"}},
		{"nothing to say", []string{"same"}, "", elsewhere, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, c := startDelta(t, cluster(tt.prefix+"same"), cluster(tt.prefix+"changed"), cluster(tt.prefix+"gone"))
			c.subscribe(cds, tt.prefix+"same", tt.prefix+"changed", tt.prefix+"gone")
			versions := versionsOf(c.recv())
			if tt.stray != "" {
				versions[tt.stray] = "1"
			}
			c.cancel()

			s.set(t, changed(tt.prefix+"changed", "x"), cluster(tt.prefix+"new"))
			s.delete(t, cds, tt.prefix+"gone")
			c = s.openDelta(t)
			c.resume(cds, versions, tt.subscribe...)
			if tt.then != nil {
				c.ack(c.want(cds, tt.then...))
			}
			c.fence()
			s.set(t, changed(tt.prefix+"same", "x"))
			c.want(cds, tt.prefix+"same")
		})
	}
}

func TestDelta_WildcardOfReconnectingClientIsAnswered(t *testing.T) {
	s, c := startDelta(t, cluster("a"))
	c.subscribe(cds)
	versions := versionsOf(c.want(cds, "a"))
	c.cancel()
	c = s.openDelta(t)
	c.resume(cds, versions)
	c.want(cds)
	c.fence()
}

// DeltaDiscoveryRequest.initial_resource_versions: only the first message of a
// type has it.
func TestDelta_InitialVersionsCountInTheFirstRequestOnly(t *testing.T) {
	s, c := startDelta(t, cluster("a"), cluster("b"))
	c.subscribe(cds, "a")
	versions := versionsOf(c.want(cds, "a"))
	versions["b"] = s.store.Get(cds, "b").Version()
	c.resume(cds, versions, "a", "b")
	c.want(cds, "a", "b")
}

// A resource that the client asks for again in its second request may have been
// dropped since the first.
func TestDelta_InitialVersionsDoNotOutliveTheFirstRequest(t *testing.T) {
	s, c := startDelta(t, cluster("a"))
	c.resume(cds, map[string]string{"a": s.store.Get(cds, "a").Version()}, "a")
	c.fence()
	c.unsubscribe(cds, "a")
	c.subscribe(cds, "a")
	c.want(cds, "a")
}
