package etcdtest

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/dynxds/dynxds/internal/loopback"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/store"
	"github.com/dynxds/dynxds/testutils"
)

// cluster is a cluster of etcd.
type cluster struct {
	t       testing.TB
	members []*member
	client  *clientv3.Client
	scheme  string      // of its clients: http or https
	tls     *tls.Config // of its clients; nil: none
}

// member is a member of a cluster. Clients reach it over a cable.
type member struct {
	config *embed.Config
	etcd   *embed.Etcd
	cable  *cable
}

// all are the members of a cluster of three.
var all = []int{0, 1, 2}

// newCluster starts a cluster, which ends with the test.
func newCluster(t testing.TB, members int) *cluster {
	t.Helper()
	return newClusterWith(t, members, nil, transport.TLSInfo{})
}

// newClusterWith starts a cluster whose clients need TLS.
func newClusterWith(t testing.TB, members int, client *tls.Config, server transport.TLSInfo) *cluster {
	t.Helper()
	c := &cluster{t: t, scheme: "http", tls: client}
	if client != nil {
		c.scheme = "https"
	}
	var peers []string
	for i := range members {
		peer, address := "http://"+reserve(t), reserve(t)
		config := embed.NewConfig()
		config.Name, config.Dir = fmt.Sprintf("member-%d", i), t.TempDir()
		config.ListenPeerUrls, config.AdvertisePeerUrls = urls(peer), urls(peer)
		config.ListenClientUrls, config.AdvertiseClientUrls = urls(c.scheme+"://"+address), urls(c.scheme+"://"+address)
		config.ClientTLSInfo = server
		config.UnsafeNoFsync = true
		config.BcryptCost = 4 // the least: the default takes seconds of CPU time under the race detector
		config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
		// Elections are quick for a test, and late enough for a busy machine.
		config.TickMs, config.ElectionMs = 100, 1500
		peers = append(peers, config.Name+"="+peer)
		c.members = append(c.members, &member{config: config, cable: newCable(t, address)})
	}
	for _, m := range c.members {
		m.config.InitialCluster = strings.Join(peers, ",")
	}
	c.start(all[:members]...)
	var err error
	c.client, err = clientv3.New(clientv3.Config{Endpoints: c.addresses(), TLS: client, Logger: zap.NewNop()})
	xdstest.NoError(t, err)
	t.Cleanup(func() {
		c.client.Close()
		for i := range c.members {
			c.kill(i)
		}
	})
	return c
}

func reserve(t testing.TB) string {
	t.Helper()
	address, err := loopback.Reserve()
	xdstest.NoError(t, err)
	t.Cleanup(address.Release)
	return address.String()
}

func urls(text string) []url.URL {
	u, _ := url.Parse(text)
	return []url.URL{*u}
}

// start starts members, and returns when they serve.
func (c *cluster) start(members ...int) {
	c.t.Helper()
	var starting sync.WaitGroup
	for _, i := range members {
		starting.Go(func() {
			m := c.members[i]
			// Later starts are those of a member that is known.
			if m.etcd != nil {
				m.config.ClusterState = embed.ClusterStateFlagExisting
			}
			etcd, err := embed.StartEtcd(m.config)
			if err != nil {
				c.t.Errorf("starting %s: %v", m.config.Name, err)
				return
			}
			m.etcd = etcd
			select {
			case <-etcd.Server.ReadyNotify():
			case <-time.After(time.Minute):
				c.t.Errorf("%s does not find the others in a minute", m.config.Name)
			}
		})
	}
	starting.Wait()
	if c.t.Failed() {
		c.t.FailNow()
	}
}

// kill ends a member as a crash does.
func (c *cluster) kill(i int) {
	if m := c.members[i]; m.etcd != nil {
		m.etcd.Server.HardStop()
		m.etcd.Close()
	}
}

// addresses are those that clients have. Certificates are those of localhost.
func (c *cluster) addresses() []string {
	var list []string
	for _, m := range c.members {
		list = append(list, strings.Replace(m.cable.address, "127.0.0.1", "localhost", 1))
	}
	return list
}

// options are those of a store with a prefix of its own.
func (c *cluster) options(prefix string) store.Options {
	return store.Options{URL: "etcd://" + strings.Join(c.addresses(), ",") + prefix}
}

// open opens a store with a prefix of its own. timeout is that of requests, zero for the default.
func (c *cluster) open(prefix string, timeout time.Duration) *store.Store {
	c.t.Helper()
	options := c.options(prefix)
	options.Timeout = timeout
	s, err := store.Open(options)
	xdstest.NoError(c.t, err)
	c.t.Cleanup(s.Close)
	return s
}

// direct returns a client of a member that does not use its cable.
func (c *cluster) direct(i int) *clientv3.Client {
	c.t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: c.members[i].cable.to, Logger: zap.NewNop()})
	xdstest.NoError(c.t, err)
	c.t.Cleanup(func() { client.Close() })
	return client
}

// put writes a key, as etcdctl does, and returns the revision.
func (c *cluster) put(key, text string) int64 {
	c.t.Helper()
	ctx := testutils.Context(c.t)
	for {
		response, err := c.client.Put(ctx, key, text)
		if err == nil {
			return response.Header.Revision
		}
		// Its client does not repeat a request that a member may have carried out before it died.
		if ctx.Err() != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *cluster) delete(key string) {
	c.t.Helper()
	_, err := c.client.Delete(testutils.Context(c.t), key)
	xdstest.NoError(c.t, err)
}

// cable carries connections to the first of some addresses that answers, as the address of a Service in
// Kubernetes does, until it is cut or they are stalled.
type cable struct {
	address  string
	to       []string
	listener net.Listener
	running  sync.WaitGroup
	mu       sync.Mutex
	conns    map[net.Conn]bool
	cut      bool
	ended    int           // how often all connections were ended
	stalled  chan struct{} // nil, or closed when they go on
}

func newCable(t testing.TB, to ...string) *cable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(t, err)
	c := &cable{address: l.Addr().String(), to: to, listener: l, conns: map[net.Conn]bool{}}
	c.running.Go(c.accept)
	t.Cleanup(func() {
		c.setStalled(false)
		c.setCut(true)
		l.Close()
		c.running.Wait()
	})
	return c
}

func (c *cable) accept() {
	for {
		conn, err := c.listener.Accept()
		if err != nil {
			return
		}
		server, ended := c.dial()
		if server == nil {
			conn.Close()
			continue
		}
		if !c.add(ended, conn, server) {
			conn.Close()
			server.Close()
			continue
		}
		c.running.Go(func() { c.carry(server, conn) })
		c.running.Go(func() { c.carry(conn, server) })
	}
}

// dial returns nil if no address answers, and how often connections were ended before.
func (c *cable) dial() (conn net.Conn, ended int) {
	c.mu.Lock()
	to, ended := c.to, c.ended
	c.mu.Unlock()
	for _, address := range to {
		if conn, err := net.Dial("tcp", address); err == nil {
			return conn, ended
		}
	}
	return nil, ended
}

// add reports false if the connections are to end, as all have been ended since they were begun.
func (c *cable) add(ended int, conns ...net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut || c.ended != ended {
		return false
	}
	for _, conn := range conns {
		c.conns[conn] = true
	}
	return true
}

// carry carries what one side sends until one of them ends.
func (c *cable) carry(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		c.mu.Lock()
		stalled := c.stalled
		c.mu.Unlock()
		if stalled != nil {
			<-stalled
		}
		if _, err2 := to.Write(buffer[:n]); err != nil || err2 != nil {
			break
		}
	}
	from.Close()
	to.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, from)
}

// setCut ends all connections and refuses new ones, or carries them again.
func (c *cable) setCut(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut = cut; cut {
		c.end()
	}
}

// setTo ends all connections, and carries new ones to other addresses.
func (c *cable) setTo(to ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.to = to
	c.end()
}

// end ends all connections, and those that are being made.
func (c *cable) end() {
	c.ended++
	for conn := range c.conns {
		conn.Close()
	}
}

// setStalled keeps back all bytes, or carries them again.
func (c *cable) setStalled(stalled bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if stalled {
		c.stalled = make(chan struct{})
	} else if c.stalled != nil {
		close(c.stalled)
		c.stalled = nil
	}
}
