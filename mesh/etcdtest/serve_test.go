package etcdtest

import (
	"fmt"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
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

// Replicas give resources the same versions, also after a restart: a client over delta that comes from another one is resent nothing.
func TestReplicasHaveTheSameVersions(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 1)
	one, two := newReplica(t, m.cluster), newReplica(t, m.cluster)
	versions := func(r *replica) map[string]string {
		t.Helper()
		stream, all := cmdtest.Delta(t, cmdtest.Dial(t, r.address)), make(map[string]string)
		for _, typeURL := range []string{typeurl.Listener, typeurl.RouteConfiguration, typeurl.Cluster, typeurl.Endpoints} {
			answer := stream.Exchange(&discoverypb.DeltaDiscoveryRequest{
				Node: &corepb.Node{Id: "client"}, TypeUrl: typeURL, ResourceNamesSubscribe: []string{"backend"},
			})
			for _, resource := range answer.GetResources() {
				all[typeURL] = resource.GetVersion()
			}
		}
		return all
	}
	want := versions(one)
	xdstest.Equal(t, "types of resources", 4, len(want))
	xdstest.Equal(t, "versions of the second replica", want, versions(two))
	two.kill()
	two.start()
	two.serves()
	xdstest.Equal(t, "versions after its restart", want, versions(two))
}
