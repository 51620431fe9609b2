package dpdswrapper_test

import (
	"testing"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

const ownConstraints = `
	"node": {"metadata": {"env": "prod", "zone": "z1", "other": "x"}},
	"node_metadata_constraints": ["env", "zone"],
	"dynamic_parameter_constraints": {
		"*": {"key_constraints": {"zone": {"constraints": [{"value": "z2"}]}}},
		"` + clusterType + `": {"key_constraints": {"shard": {"constraints": [{"value": "1"}]}}}
	}`

// TP2, "Rationale": the mechanism "can be used with the legacy xDS naming scheme
// as well".
func TestOwnConstraintsHoldForAllNames(t *testing.T) {
	t.Parallel()
	f := newFixture(t, authorities, ownConstraints)
	f.Watch(xdsresource.ListenerType, "old-style", new(above))
	f.expect("+Listener old-style {env=prod, zone=z2}")
	f.Watch(xdsresource.ClusterType, name("x", clusterType, "c"), new(above))
	f.expect("+Cluster " + name("x", clusterType, "c") + " {env=prod, shard=1, zone=z2}")
}

// Constraints are merged by key: metadata, bootstrap, program, DPDS. The later take precedence.
func TestPrecedenceOfConstraints(t *testing.T) {
	t.Parallel()
	f := newFixture(t, authorities, ownConstraints)
	f.Watch(xdsresource.ClusterType, clusterA, new(above))
	f.find("DPDS").change(nil, errGone)
	f.expect("+DPDS for-a", "[", "+Cluster "+clusterA+" {env=prod, shard=1, zone=z2}", "]")
	f.wrapper.SetConstraints(only(dynparam.AnyType, "shard", "2", "program", "p"))
	f.expect("[", "+Cluster "+clusterA+" {env=prod, program=p, shard=2, zone=z2}", "-Cluster "+clusterA+" {env=prod, shard=1, zone=z2}", "]")
	f.dpds("for-a", only(clusterType, "shard", "3"))
	f.expect("[", "+Cluster "+clusterA+" {env=prod, program=p, shard=3, zone=z2}", "-Cluster "+clusterA+" {env=prod, program=p, shard=2, zone=z2}", "]")
	// What DPDS says of the same key hides changes below.
	f.wrapper.SetConstraints(only(dynparam.AnyType, "shard", "4", "program", "p"))
	f.expect()
	// The zero value removes what the program set.
	f.wrapper.SetConstraints(dynparam.ByType{})
	f.expect("[", "+Cluster "+clusterA+" {env=prod, shard=3, zone=z2}", "-Cluster "+clusterA+" {env=prod, program=p, shard=3, zone=z2}", "]")
}

// The DPDS resource depends on the client, not on the locator.
func TestDPDSIsRequestedWithoutConstraints(t *testing.T) {
	t.Parallel()
	f := newFixture(t, authorities, ownConstraints)
	f.Watch(xdsresource.ClusterType, clusterA, new(above))
	f.wrapper.SetConstraints(only(dynparam.AnyType, "shard", "2"))
	f.expect("+DPDS for-a")
}

// TP2, "Sharding Cluster resources": the shards that a client gets "may change at
// any time".
func TestConstraintsSetAtRunTimeMoveExactlyTheirTypes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, authorities)
	l, c := new(above), new(above)
	f.Watch(xdsresource.ListenerType, "l", l)
	f.Watch(xdsresource.ClusterType, "c", c)
	f.Watch(xdsresource.ClusterType, clusterA, new(above))
	f.find("Cluster c").change("all", nil)
	f.expect("+Listener l", "+Cluster c", "+DPDS for-a")
	f.wrapper.SetConstraints(only(clusterType, "shard", "1"))
	// A watch that waits for DPDS still waits, and starts with both.
	f.expect("[", "+Cluster c {shard=1}", "-Cluster c", "]")
	f.dpds("for-a", only(clusterType, "v", "1"))
	f.expect("[", "+Cluster "+clusterA+" {shard=1, v=1}", "]")
	// Set again, they change nothing.
	f.wrapper.SetConstraints(only(clusterType, "shard", "1"))
	f.expect()
	// All scopes move in one batch.
	f.wrapper.SetConstraints(only(clusterType, "shard", "2"))
	f.expect("[", "+Cluster c {shard=2}", "-Cluster c {shard=1}",
		"+Cluster "+clusterA+" {shard=2, v=1}", "-Cluster "+clusterA+" {shard=1, v=1}", "]")
	f.find("Cluster c").change(nil, errUnreachable)
	f.find("Cluster c").change("shard 2", nil)
	c.expect(t, "all", "~unreachable", "shard 2")
	l.expect(t)
}

func TestBootstrapIsThatOfTheClientBelow(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if got := f.Bootstrap(); got != f.cfg {
		t.Errorf("Bootstrap() = %p, want %p", got, f.cfg)
	}
}
