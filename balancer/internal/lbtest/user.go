package lbtest

import (
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/traffic"
)

// User is a policy with one connection, whose states the test reports.
type User struct {
	*conns.Conn
	// Health counts the calls of the health listener.
	Health atomic.Int64

	sc *SubConn
}

// NewRegistry returns a Registry whose connections are on a ClientConn of its own and do not linger.
func NewRegistry() *conns.Registry {
	pool := conns.NewPool(NewClientConn(NewNetwork()), func(f func()) { f() }, 0)
	return conns.NewRegistry(&conns.Setup{Pool: pool}, func() {})
}

// NewUser adds a User to r, in a connectivity state, with a connection to the first of the addresses or, if there are several, to one
// of them.
func NewUser(r *conns.Registry, s connectivity.State, addresses ...string) *User {
	u := new(User)
	var list []resolver.Address
	for _, a := range addresses {
		list = append(list, resolver.Address{Addr: a})
	}
	c, err := r.Open(new(conns.User), list, balancer.NewSubConnOptions{}, func(*conns.Conn, balancer.SubConnState) {})
	if err != nil {
		panic(err)
	}
	u.Conn, u.sc = c, c.Unwrap().(*SubConn)
	u.Report(s)
	return u
}

// Report reports a connectivity state. If it is READY, the User listens to the health from then on.
func (u *User) Report(s connectivity.State) {
	u.sc.listener(balancer.SubConnState{ConnectivityState: s})
	if s == connectivity.Ready {
		u.RegisterHealthListener(func(balancer.SubConnState) { u.Health.Add(1) })
		u.sc.health(balancer.SubConnState{ConnectivityState: s})
		u.Health.Store(0)
	}
}

// Start starts an RPC, and returns what ends it.
func (u *User) Start() func(balancer.DoneInfo) {
	c := traffic.Use(traffic.Key{})
	defer c.Release()
	u.Begin()
	return u.Ender(c)
}

// Count has an RPC end.
func (u *User) Count(info balancer.DoneInfo) { u.Start()(info) }

// Open reports whether the connection is not shut down.
func (u *User) Open() bool {
	u.sc.cc.mu.Lock()
	defer u.sc.cc.mu.Unlock()
	return slices.Contains(u.sc.cc.subConns, u.sc)
}
