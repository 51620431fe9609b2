package etcdtest

import (
	"fmt"
	"testing"

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
