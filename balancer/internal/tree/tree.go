// Package tree holds what the policies of one balancer tree share: the loop
// that every one of them runs on, and the shape they all have.
//
// It is not a policy and knows of none. It makes two rules that spare the
// policies every lock of their own:
//
//  1. Everything runs on the Loop. Policies are created, updated, read and
//     closed there and nowhere else. What arrives from elsewhere (a leaf's new
//     picker, a timer) is posted to it.
//  2. News travels up only as an event of its own. A policy never calls the
//     changed function that it was given from inside a call that its parent
//     makes; the parent reads State after the call.
package tree

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/clustertls"
	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/endpoints"
)

// Env is what all the policies of one tree have in common.
type Env struct {
	// Loop is what the tree runs on.
	Loop *Loop
	// ClientConn is the channel. Policies do not call its UpdateState, which is for
	// the root, and have Conns make SubConns.
	ClientConn balancer.ClientConn
	// Conns opens the connections.
	Conns *conns.Pool
	// TLS has the credentials of clusters that ask for their connections to be secured.
	TLS *clustertls.Pool
	// Bundle secures the connections of the cluster that this part of the tree serves. nil:
	// they have the credentials of the channel.
	Bundle *clustertls.Bundle
	// Options are handed to the policies that gRPC's registry builds.
	Options balancer.BuildOptions
	// ResolveNow asks for the addresses of endpoints to be looked up again. It
	// does not wait and may be called from anywhere. nil: nobody looks them up.
	ResolveNow func()
	// Endpoints has the endpoints of the cluster that this part of the tree serves. It is
	// nil above the clusters, where nothing connects.
	Endpoints *endpoints.Registry
}

// ForCluster returns the Env for the part of the tree that serves a cluster.
func (e *Env) ForCluster(resolveNow func()) *Env {
	part := *e
	part.ResolveNow = resolveNow
	return &part
}

// Resolve calls ResolveNow, if there is one.
func (e *Env) Resolve() {
	if e.ResolveNow != nil {
		e.ResolveNow()
	}
}

// Policy is one node of the tree. How it is updated differs from policy to
// policy; the rest does not. All methods are called on the Loop.
type Policy interface {
	// State is the policy's connectivity and its picker, both as of now. The
	// picker is never nil.
	State() balancer.State
	// ExitIdle asks for connections where there are none.
	ExitIdle()
	// Close ends every timer, goroutine and SubConn of the policy. Nothing is
	// called after it.
	Close()
}

// Waiting is the state of a policy whose RPCs wait for news.
func Waiting(s connectivity.State) balancer.State {
	return balancer.State{
		ConnectivityState: s,
		Picker:            base.NewErrPicker(balancer.ErrNoSubConnAvailable),
	}
}

// FailingWith is Failing with notes, which are worded when an RPC fails. They may be nil.
func FailingWith(err error, notes fmt.Stringer) balancer.State {
	return balancer.State{ConnectivityState: connectivity.TransientFailure, Picker: noted{err.Error(), notes}}
}

// noted is the picker of FailingWith.
type noted struct {
	text  string
	notes fmt.Stringer
}

// Pick implements balancer.Picker.
func (n noted) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	return balancer.PickResult{}, errors.New(Noted(n.text, n.notes))
}

// Noted adds notes, which may be nil, to the text of an error, unless it has them.
func Noted(text string, notes fmt.Stringer) string {
	if notes == nil {
		return text
	}
	if more := notes.String(); !strings.Contains(text, more) {
		text += " (" + more + ")"
	}
	return text
}

// Failing is the state of a policy that has nothing to offer. Its RPCs fail
// with err, UNAVAILABLE, unless they wait for ready; err is no status error,
// as those end even RPCs that wait.
func Failing(err error) balancer.State {
	return balancer.State{
		ConnectivityState: connectivity.TransientFailure,
		Picker:            base.NewErrPicker(err),
	}
}
