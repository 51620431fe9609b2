package controlplane_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/dynxds/dynxds/internal/dynwire"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// The worked examples of TP2, from the server's side, as far as those from end to end (e2e) do not contain
// them. Headings are those of the text of 2021-08.

const (
	srds     = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration"
	dpdsName = "xdstp://xds.example.com/envoy.config.dynamic_parameters.v3.DynamicParameterConstraintsMap/x"
)

// "xDS Minor/Patch Version Negotiation".
func TestTP2_VersionNegotiation(t *testing.T) {
	eachVariant(t, controlplane.Options{}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		s.update(t, func(tx *controlplane.Tx) {
			for patch := range 5 {
				tx.SetNamed("l", parameters("xds.version.patch", fmt.Sprint(patch)), variant(lds, "without"))
			}
			tx.SetNamed("l", parameters("xds.version.patch", "5"), variant(lds, "with"))
		})
		for newest, want := range map[uint64]string{0: "without", 3: "without", 4: "without", 5: "with", 9: "with", math.MaxUint64: "with"} {
			c := open("n")
			c.wants(c.subscribe(lds, "l", inRange(t, "xds.version.patch", dynparam.AtMost(newest))), want)
		}
		if got := s.control.AmbiguousChoices(); got != 0 {
			t.Errorf("%d ambiguous choices: the largest value decides", got)
		}
	})
}

// "Sharding Clusters": one SRDS resource by exact value, Clusters by ranges.
func TestTP2_ShardingClusters(t *testing.T) {
	eachVariant(t, controlplane.Options{}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		const ranges = "[4-6],[11-15],[46-90]"
		s.setVariant(t, srds, "scope", "mine", "shards", ranges)
		s.setVariant(t, srds, "scope", "other", "shards", "[1-3]")
		for _, shard := range []string{"3", "4", "6", "7", "15", "16", "60", "91", "not a number"} {
			s.setVariant(t, cds, "cluster-"+shard, "c", "shards", shard)
		}
		c := open("n")
		scope := c.subscribe(srds, "scope", exactly(t, "shards", ranges))
		shards := c.subscribe(cds, "*", inRange(t, "shards",
			dynparam.Range{Min: 4, Max: 6}, dynparam.Range{Min: 11, Max: 15}, dynparam.Range{Min: 46, Max: 90}))
		c.wants(scope, "mine")
		c.wants(shards, "cluster-15=c cluster-4=c cluster-6=c cluster-60=c")

		// A cluster moves out of the client's shards, another one into them.
		s.update(t, func(tx *controlplane.Tx) {
			tx.Delete(cds, "cluster-4")
			tx.SetNamed("cluster-4", parameters("shards", "100"), variant(cds, "c"))
			tx.Delete(cds, "cluster-91")
			tx.SetNamed("cluster-91", parameters("shards", "90"), variant(cds, "c"))
		})
		c.wants(shards, "cluster-15=c cluster-6=c cluster-60=c cluster-91=c")
	})
}

// The same with a glob collection, which delta alone has.
func TestTP2_ShardingClustersByGlob(t *testing.T) {
	t.Parallel()
	const dir = "xdstp://a/envoy.config.cluster.v3.Cluster/d/"
	s := startServer(t)
	for shard := range 8 {
		s.setVariant(t, cds, fmt.Sprintf("%sc%d", dir, shard), "c", "shards", fmt.Sprint(shard))
	}
	c := newTP2Client(t, s, newTP2Delta(t, s, "n"))
	low := c.subscribe(cds, dir+"*", inRange(t, "shards", dynparam.AtMost(2)))
	high := c.subscribe(cds, dir+"*", inRange(t, "shards", dynparam.AtLeast(7)))
	none := c.subscribe(cds, dir+"*", exactly(t, "shards", "70"))
	c.wants(low, fmt.Sprintf("%[1]sc0=c %[1]sc1=c %[1]sc2=c", dir))
	c.wants(high, dir+"c7=c")
	c.wants(none, nothing)

	// "All matching variants of the resource will be used."
	s.setVariant(t, cds, dir+"c1", "second", "shards", "2")
	c.wants(low, fmt.Sprintf("%[1]sc0=c %[1]sc1=c %[1]sc1=second %[1]sc2=c", dir))
	s.deleteVariant(t, cds, dir+"c1", "shards", "1")
	c.wants(low, fmt.Sprintf("%[1]sc0=c %[1]sc1=second %[1]sc2=c", dir))
	s.delete(t, cds, dir+"c1")
	c.wants(low, fmt.Sprintf("%[1]sc0=c %[1]sc2=c", dir))
	c.unsubscribe(low)
	s.setVariant(t, cds, dir+"c0", "new", "shards", "0")
	c.wants(high, dir+"c7=c")
}

// learned are the constraints that the client was sent for a type.
func learned(t *testing.T, h *holding, typeURL string) dynparam.Constraints {
	t.Helper()
	m, err := dynwire.UnmarshalMap(variant(dynparam.MapTypeURL, h.has))
	xdstest.NoError(t, err)
	byType, err := dynparam.ByTypeFromProto(m)
	xdstest.NoError(t, err)
	return byType.For(typeURL)
}

// "Matching Ambiguity", the expected order of changes. The client has a resource
// at every moment.
func TestTP2_TransitionInFourSteps(t *testing.T) {
	eachVariant(t, controlplane.Options{}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		for _, env := range []string{"prod", "test"} {
			s.setVariant(t, cds, "c", env, "env", env)
		}
		c := open("n")
		old := c.subscribe(cds, "c", exactly(t, "env", "prod"))
		c.wants(old, "prod")

		// 1. Clients send version=v1, which no variant has.
		v1 := c.move([]ask{{cds, "c", exactly(t, "env", "prod", "version", "v1")}}, []ask{old.ask})[0]
		c.wants(v1, "prod")

		// 2. All existing resources get version=v1.
		for _, env := range []string{"prod", "test"} {
			s.update(t, func(tx *controlplane.Tx) {
				tx.SetNamed("c", parameters("env", env, "version", "v1"), variant(cds, env+" v1"))
				tx.DeleteVariant(cds, "c", parameters("env", env))
			})
			c.settle()
			if v1.has == nothing {
				t.Fatal("the client had nothing in step 2")
			}
		}
		c.wants(v1, "prod v1")

		// 3. There are variants with version=v2.
		for _, env := range []string{"prod", "test"} {
			s.setVariant(t, cds, "c", env+" v2", "env", env, "version", "v2")
		}
		c.wants(v1, "prod v1")

		// 4. Some clients send version=v2.
		v2 := c.move([]ask{{cds, "c", exactly(t, "env", "prod", "version", "v2")}}, []ask{v1.ask})[0]
		c.wants(v2, "prod v2")
		if got := s.control.AmbiguousChoices(); got != 0 {
			t.Errorf("%d ambiguous choices on the way", got)
		}
	})
}

// "Matching Ambiguity": what best practice avoids is decided always alike, and
// counted.
func TestTP2_AmbiguousChoiceIsCounted(t *testing.T) {
	eachVariant(t, controlplane.Options{}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		s.setVariant(t, rds, "keys", "without version", "env", "prod")
		s.setVariant(t, rds, "keys", "with version", "env", "prod", "version", "v1")
		s.setVariant(t, rds, "values", "v1", "env", "prod", "version", "v1")
		s.setVariant(t, rds, "values", "v2", "env", "prod", "version", "v2")
		c := open("n")
		c.wants(c.subscribe(rds, "keys", exactly(t, "env", "prod", "version", "v1")), "with version")
		c.wants(c.subscribe(rds, "values", exactly(t, "env", "prod")), "v1")
		if got := s.control.AmbiguousChoices(); got != 2 {
			t.Errorf("%d ambiguous choices were counted, want 2", got)
		}
		// Another stream with the same constraints shares the choice.
		other := open("m")
		other.wants(other.subscribe(rds, "values", exactly(t, "env", "prod")), "v1")
		if got := s.control.AmbiguousChoices(); got != 2 {
			t.Errorf("%d after a second stream, want 2", got)
		}
	})
}

// "Matching Behavior and Best Practices": "the largest possible matching value is
// preferred".
func TestTP2_LargestMatchingValueIsPreferred(t *testing.T) {
	eachVariant(t, controlplane.Options{}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		s.setVariant(t, eds, "e", "3", "shard", "3")
		c := open("n")
		h := c.subscribe(eds, "e", inRange(t, "shard", dynparam.AtMost(5)))
		c.wants(h, "3")
		s.setVariant(t, eds, "e", "5", "shard", "5")
		c.wants(h, "5")
		s.setVariant(t, eds, "e", "10", "shard", "10")
		s.setVariant(t, eds, "e", "4", "shard", "4")
		c.wants(h, "5")
		s.deleteVariant(t, eds, "e", "shard", "5")
		c.wants(h, "4")
		if got := c.responses[eds]; got != 3 {
			t.Errorf("%d responses, want one for each change of the choice", got)
		}
	})
}
