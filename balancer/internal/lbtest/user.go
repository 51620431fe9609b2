package lbtest

import (
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/endpoints"
)

// User is a connection in an endpoints.Registry without a connection behind it. It counts
// what the Registry calls.
type User struct {
	endpoints.Conn
	balancer.SubConn

	Released, EjectionChanges, HealthCheckChanges atomic.Int64
}

// NewUser adds a User to r, in a connectivity state.
func NewUser(r *endpoints.Registry, address string, s connectivity.State) *User {
	u := new(User)
	u.Conn = r.NewConn(u, address, false)
	u.Add()
	u.Report(s)
	return u
}

// Report reports a connectivity state.
func (u *User) Report(s connectivity.State) {
	u.Conn.Report(balancer.SubConnState{ConnectivityState: s})
}

// Release implements endpoints.SubConn.
func (u *User) Release() { u.Released.Add(1) }

// HealthCheckChanged implements endpoints.SubConn.
func (u *User) HealthCheckChanged() { u.HealthCheckChanges.Add(1) }

// EjectionChanged implements endpoints.SubConn.
func (u *User) EjectionChanged() { u.EjectionChanges.Add(1) }
