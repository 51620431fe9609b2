package dpdswrapper_test

import (
	"testing"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

var (
	listenerA = name("a", listenerType, "l")
	clusterA  = name("a", clusterType, "c")
	clusterB  = name("b", clusterType, "c")
)

// TP2, "Server-Specified Constraints": "If configured, the client will subscribe
// to the DPDS resource before subscribing to any other type of resource. It will
// then use the constraints from the DPDS resource when subscribing to all other
// types of resources."
func TestDPDSComesBeforeAnyOtherWatchOfTheAuthority(t *testing.T) {
	t.Parallel()
	f := newFixture(t, authorities)
	// Given watches of an authority with DPDS,
	f.Watch(xdsresource.ListenerType, listenerA, new(above))
	f.Watch(xdsresource.ClusterType, clusterA, new(above))
	// then only the DPDS resource is asked for, once and without constraints,
	f.expect("+DPDS for-a")
	// and when it arrives, the others follow in one batch, with its constraints.
	f.dpds("for-a", only(listenerType, "listener_type", "direct"))
	f.expect("[", "+Listener "+listenerA+" {listener_type=direct}", "+Cluster "+clusterA, "]")
}

// TP2, "DPDS Example".
func TestTP2ExampleOfDPDS(t *testing.T) {
	t.Parallel()
	f := newFixture(t, authorities)
	l := new(above)
	f.Watch(xdsresource.ListenerType, listenerA, l)
	f.dpds("for-a", only(listenerType, "listener_type", "direct"))
	f.find("Listener").change("direct", nil)
	l.expect(t, "direct")
	f.expect("+DPDS for-a", "[", "+Listener "+listenerA+" {listener_type=direct}", "]")
	// "The client would then send a new request that unsubscribes from the LDS
	// resource with the old constrains and subscribes to the same resource with
	// the new constraints."
	f.dpds("for-a", only(listenerType, "listener_type", "via_proxy"))
	f.expect("[",
		"+Listener "+listenerA+" {listener_type=via_proxy}",
		"-Listener "+listenerA+" {listener_type=direct}", "]")
	l.expect(t)
	f.find("Listener").change("via proxy", nil)
	l.expect(t, "via proxy")
}

// TP2, "Server-Specified Constraints": "If the client cannot obtain the
// configured DPDS resource, it will ignore the failure and request the remaining
// resources with no additional constraints."
func TestDPDSThatCannotBeObtainedMeansNoConstraints(t *testing.T) {
	t.Parallel()
	for _, err := range []error{errDoesNotExist, errNotFound, errDenied, errInternal, errInvalid, errUnreachable, errTimeout, errRefused} {
		xdstest.Parallel(t, text(err), func(t *testing.T) {
			f := newFixture(t, authorities, `"dynamic_parameter_constraints": {"*": {"key_constraints": {"env": {"constraints": [{"value": "prod"}]}}}}`)
			f.Watch(xdsresource.ListenerType, listenerA, new(above))
			f.expect("+DPDS for-a")
			f.find("DPDS").change(nil, err)
			// No additional constraints: those of the client's own stay.
			f.expect("[", "+Listener "+listenerA+" {env=prod}", "]")
			// When DPDS can be obtained later, its constraints apply.
			f.dpds("for-a", only(listenerType, "v", "1"))
			f.expect("[", "+Listener "+listenerA+" {env=prod, v=1}", "-Listener "+listenerA+" {env=prod}", "]")
		})
	}
}

// gRFC A88: an ambient error leaves the resource in use, and so its constraints.
func TestAmbientErrorOfDPDSKeepsItsConstraints(t *testing.T) {
	t.Parallel()
	f := newFixture(t, authorities)
	f.Watch(xdsresource.ListenerType, listenerA, new(above))
	f.dpds("for-a", only(listenerType, "v", "1"))
	f.log = nil
	f.find("DPDS").ambient(errUnreachable)
	f.expect()
	// A late watch has them as well.
	f.Watch(xdsresource.ListenerType, name("a", listenerType, "late"), new(above))
	f.expect("+Listener " + name("a", listenerType, "late") + " {v=1}")
}

// gRFC A88: an error in place of the resource withdraws it, and so its constraints.
func TestDPDSThatIsWithdrawnTakesItsConstraintsWithIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t, authorities)
	f.Watch(xdsresource.ListenerType, listenerA, new(above))
	f.dpds("for-a", only(listenerType, "v", "1"))
	f.log = nil
	f.find("DPDS").change(nil, errDoesNotExist)
	f.expect("[", "+Listener "+listenerA, "-Listener "+listenerA+" {v=1}", "]")
}

// TP2, "Server-Specified Constraints": "the client should be able to configure a
// different DPDS resource to use for each authority"; "Non-Cacheability of DPDS":
// it may be of a different authority.
func TestEachAuthorityHasItsOwnDPDS(t *testing.T) {
	t.Parallel()
	f := newFixture(t, authorities)
	f.Watch(xdsresource.ClusterType, clusterA, new(above))
	f.Watch(xdsresource.ClusterType, clusterB, new(above))
	// The DPDS resource of b is of authority a, but does not wait for that of a.
	f.expect("+DPDS for-a", "+DPDS for-b")
	f.dpds("for-b", only(clusterType, "v", "b"))
	f.expect("[", "+Cluster "+clusterB+" {v=b}", "]")
	f.dpds("for-a", only(clusterType, "v", "a"))
	f.expect("[", "+Cluster "+clusterA+" {v=a}", "]")
	f.dpds("for-b", only(clusterType, "v", "b2"))
	f.expect("[", "+Cluster "+clusterB+" {v=b2}", "-Cluster "+clusterB+" {v=b}", "]")
}

// TP2, "Possible DPDS Implementation": "if use of DPDS is not configured or the
// resource name is an old-style resource name, the watch will just be passed down
// to the real XdsClient without modification."
func TestOldStyleNamesAndAuthoritiesWithoutDPDSPassThrough(t *testing.T) {
	t.Parallel()
	f := newFixture(t, authorities)
	names := []string{"old-style", name("x", listenerType, "l"), name("unknown", listenerType, "l"), "xdstp://no-type", "xdstp:a/broken"}
	for _, n := range names {
		w := new(above)
		stop := f.Watch(xdsresource.ListenerType, n, w)
		f.expect("+Listener " + n)
		f.find("Listener "+n).change("value", nil)
		w.expect(t, "value")
		stop()
		f.expect("-Listener " + n)
	}
}

// The authority counts, not how it is spelled.
func TestAuthorityIsFoundInAnySpelling(t *testing.T) {
	t.Parallel()
	f := newFixture(t, authorities)
	f.Watch(xdsresource.ListenerType, "xdstp://%61/"+listenerType+"/l", new(above))
	f.expect("+DPDS for-a")
}

func TestStopsWhileDPDSIsAwaited(t *testing.T) {
	t.Parallel()
	f := newFixture(t, authorities)
	one, two := new(above), new(above)
	stopOne := f.Watch(xdsresource.ListenerType, listenerA, one)
	stopTwo := f.Watch(xdsresource.ClusterType, clusterA, two)
	f.expect("+DPDS for-a")
	// Given that one of two waiting watches stops, then it never starts.
	stopOne()
	f.expect()
	// With the last one the DPDS watch ends, and its answer is too late.
	dpds := f.find("DPDS")
	stopTwo()
	stopTwo()
	f.expect("-DPDS for-a")
	dpds.change(&xdsresource.DynamicParameterConstraintsMap{}, nil)
	f.expect()
	// A new watch asks for the DPDS resource again.
	f.Watch(xdsresource.ClusterType, clusterA, two)
	f.expect("+DPDS for-a")
	f.dpds("for-a", only(clusterType, "v", "1"))
	f.expect("[", "+Cluster "+clusterA+" {v=1}", "]")
	two.expect(t)
}

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
	f.find("DPDS").change(nil, errDoesNotExist)
	f.expect("+DPDS for-a", "[", "+Cluster "+clusterA+" {env=prod, shard=1, zone=z2}", "]")
	f.wrapper.SetConstraints(only(dynparam.AnyType, "shard", "2", "program", "p"))
	f.expect("[", "+Cluster "+clusterA+" {env=prod, program=p, shard=2, zone=z2}", "-Cluster "+clusterA+" {env=prod, shard=1, zone=z2}", "]")
	f.dpds("for-a", only(clusterType, "shard", "3"))
	f.expect("[", "+Cluster "+clusterA+" {env=prod, program=p, shard=3, zone=z2}", "-Cluster "+clusterA+" {env=prod, program=p, shard=2, zone=z2}", "]")
	// DPDS hides changes of the same key below it.
	f.wrapper.SetConstraints(only(dynparam.AnyType, "shard", "4", "program", "p"))
	f.expect()
	// The zero value removes what the program set.
	f.wrapper.SetConstraints(dynparam.ByType{})
	f.expect("[", "+Cluster "+clusterA+" {env=prod, shard=3, zone=z2}", "-Cluster "+clusterA+" {env=prod, program=p, shard=3, zone=z2}", "]")
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
