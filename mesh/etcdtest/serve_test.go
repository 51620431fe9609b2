package etcdtest

import (
	"fmt"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// mesh is a cluster with one service, and backends that it may have.
type mesh struct {
	*cluster
	backends []*testutils.Backend
	at       int
}

func newMesh(t *testing.T, members int) *mesh {
	t.Helper()
	m := &mesh{cluster: newCluster(t, members)}
	for i := range 3 {
		m.backends = append(m.backends, testutils.StartBackend(t, fmt.Sprintf("backend-%d", i)))
	}
	m.move()
	return m
}

// move moves the service to the next backend, and returns it.
func (m *mesh) move() *testutils.Backend {
	m.t.Helper()
	m.at = (m.at + 1) % len(m.backends)
	m.put(key("backend.yaml"), service("backend", m.backends[m.at].Addr()))
	return m.backends[m.at]
}

// Members of etcd die one by one and then all, and replicas die and are drained: no RPC fails, and every
// change arrives as soon as there is a quorum and a replica.
func TestMembersAndReplicasDie(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 3)
	one, two := newReplica(t, m.cluster), newReplica(t, m.cluster)
	c := newClient(t, newCable(t, one.address, two.address).address)
	c.reaches(m.backends[m.at])
	stop := c.load()
	defer stop()

	for i := range m.members {
		m.kill(i)
		c.reaches(m.move())
		m.start(i)
	}
	for i := range m.members {
		m.kill(i)
	}
	two.logged("the store does not answer; serving the last known documents")
	newClient(t, two.address).reaches(m.backends[m.at])
	one.drain()
	one.start()
	one.logged("not ready: there is nothing to serve yet", "cannot read the store")
	m.start(all...)
	one.serves()
	two.logged("the store answers again")
	c.reaches(m.move())

	for range 2 {
		one.kill()
		c.reaches(m.move())
		one.start()
		one.serves()
		two.drain()
		c.reaches(m.move())
		two.start()
		two.serves()
	}
	for _, r := range []*replica{one, two} {
		if n := r.log.Count("a client rejects a response"); n > 0 {
			t.Errorf("a replica got %d NACKs", n)
		}
	}
}

// Faulty documents that are written past "dynxds apply" are named by every replica, and have no effect on clients; no
// other change has, until they are corrected. A replica that starts meanwhile leaves clients to the others.
func TestFaultyDocumentsAreNamedByEveryReplica(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 1)
	one, two := newReplica(t, m.cluster), newReplica(t, m.cluster)
	c := newClient(t, newCable(t, two.address, one.address).address)
	served := m.backends[m.at]
	c.reaches(served)
	stop := c.load()
	defer stop()
	moved := served
	for _, faulty := range []map[string]struct{ text, fault string }{
		{
			"policy.yaml": {"kind: MeshHTTPRoute\nmetadata: {name: p}\nspec: {to: [{targetRef: {kind: Nothing}}]}\n", "Nothing"},
			"other.yaml":  {service("backend", "another:1"), "duplicate service backend"},
		},
		// Valid as documents, but clients reject them.
		{"policy.yaml": {
			"kind: Resource\nresource: {'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster, name: c, type: EDS}\n",
			"Cluster c: clients reject it: eds_cluster_config",
		}},
	} {
		for name, document := range faulty {
			m.put(key(name), document.text)
		}
		for name, document := range faulty {
			for _, r := range []*replica{one, two} {
				r.logged("the store has errors; clients keep the last good state", name, document.fault)
			}
		}
		served, moved = moved, m.move()
		two.drain()
		two.start()
		two.logged("not ready: there is nothing to serve yet", "policy.yaml", faulty["policy.yaml"].fault)
		newClient(t, one.address).reaches(served)
		c.reaches(served)
		for name := range faulty {
			m.delete(key(name))
		}
		one.logged("the store is valid again")
		two.serves()
		c.reaches(moved)
	}

	// Everything is lost, as after "etcdctl del" with too short a prefix.
	m.delete(key("backend.yaml"))
	one.logged("the store has errors; clients keep the last good state", "has no documents")
	two.drain()
	two.start()
	two.logged("not ready: there is nothing to serve yet", "has no documents")
	newClient(t, one.address).reaches(moved)
	c.reaches(m.move())
	two.serves()
}

// A client over delta that comes to another replica by the name of all of them, or to the same one after
// its restart, is resent nothing.
func TestNothingIsResent(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 1)
	one, two := newReplica(t, m.cluster), newReplica(t, m.cluster)
	first, second := newRecorder(t, one.address), newRecorder(t, two.address)
	name := newCable(t, first.address)
	c := newClient(t, name.address)
	c.reaches(m.backends[m.at])
	if len(first.take()) != 4 {
		t.Fatal("want a Listener, a RouteConfiguration, a Cluster and its endpoints from the first replica")
	}
	endpoints := []string{"ClusterLoadAssignment backend"}
	name.setTo(second.address)
	second.asked(t)
	c.reaches(m.move())
	xdstest.Equal(t, "sent by the second replica", endpoints, second.take())
	two.kill()
	two.start()
	two.serves()
	second.asked(t)
	c.reaches(m.move())
	xdstest.Equal(t, "sent by the second replica after its restart", endpoints, second.take())
}
