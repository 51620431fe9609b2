// Package tree is what the policies of one balancer tree share: the loop that all of them run
// on, and their form. It knows no policy.
//
// Two rules spare the policies locks of their own:
//
//  1. Everything runs on the Loop. Policies are created, updated, read and closed there only.
//     What comes from elsewhere, such as a leaf's new picker or a timer, is posted to it.
//  2. A change travels up as an event of its own. A policy does not call its changed function
//     during a call by its parent; the parent reads State after the call.
package tree

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/rpctrace"
)

// Env is what the policies of a tree have in common.
type Env struct {
	Loop *Loop
	// ClientConn is the channel. Policies do not call its UpdateState, which is the root's, and
	// open connections by Endpoints.
	ClientConn balancer.ClientConn
	conns.Setup
	// Options are for policies that gRPC's registry builds.
	Options balancer.BuildOptions
	// Locality is where the endpoints of this part of the tree are, as telemetry names it. It is empty
	// if they are in several, and above the localities.
	Locality string
	// Endpoints has the endpoints of the cluster that this part of the tree serves, and opens connections to them. It is
	// nil above the clusters, where nothing connects.
	Endpoints *conns.Registry
}

// Policy is one node of the tree. The policies are updated in different ways; the rest is the
// same. All methods are called on the Loop.
type Policy interface {
	// State is the current connectivity and picker. The picker is never nil.
	State() balancer.State
	// ExitIdle connects what is idle.
	ExitIdle()
	// Close ends all timers, goroutines and SubConns of the policy. No other method is called
	// after it.
	Close()
}

// Configured is a Policy whose configuration is a C.
type Configured[C any] interface {
	Policy
	Update(C)
}

// Order is that of connectivity states: what has several parts is in the first state that a part is in.
var Order = [...]connectivity.State{
	connectivity.Ready, connectivity.Connecting, connectivity.Idle, connectivity.TransientFailure,
}

// Waiting is the state of a policy whose RPCs wait.
func Waiting(s connectivity.State) balancer.State {
	return balancer.State{
		ConnectivityState: s,
		Picker:            base.NewErrPicker(balancer.ErrNoSubConnAvailable),
	}
}

// Failing is the state of a policy that cannot serve. Its RPCs fail with the text of err (UNAVAILABLE) and the notes,
// which are read then and may be nil, unless they wait for ready.
func Failing(err error, notes fmt.Stringer) balancer.State {
	return balancer.State{ConnectivityState: connectivity.TransientFailure, Picker: failing{err, notes}}
}

// failing is the picker of Failing.
type failing struct {
	err   error
	notes fmt.Stringer
}

// Pick returns an error without a gRPC status, which would end even RPCs that wait.
func (f failing) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	decision.FromContext(info.Ctx).Fail(rpctrace.Unusable)
	return balancer.PickResult{}, errors.New(Noted(f.err.Error(), f.notes))
}

// Noted appends notes, which may be nil, to the text of an error that does not have them.
func Noted(text string, notes fmt.Stringer) string {
	if notes == nil {
		return text
	}
	if more := notes.String(); !strings.Contains(text, more) {
		text += " (" + more + ")"
	}
	return text
}

// Drops reports whether a policy ends the RPC by the error of its pick, as a status error does, even to an RPC that waits for ready. The
// RPC's code is then the policy's code, or UNAVAILABLE in place of a code that only servers may choose (gRFC A54).
func Drops(err error) (code codes.Code, drops bool) {
	s, drops := err.(interface{ GRPCStatus() *status.Status }) // A connection error may have one inside.
	if !drops {
		return codes.Unavailable, false
	}
	switch code = s.GRPCStatus().Code(); code {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.Aborted, codes.OutOfRange, codes.DataLoss:
		code = codes.Unavailable
	}
	return code, true
}

// Explain puts a prefix and notes around the text of a pick's error. A status error stays one, with the code that Drops returns;
// another error stays one for which RPCs that wait for ready go on waiting.
func Explain(err error, prefix string, notes fmt.Stringer) error {
	if s, isStatus := status.FromError(err); isStatus {
		code, _ := Drops(err)
		return status.Error(code, Noted(prefix+s.Message(), notes))
	}
	return errors.New(Noted(prefix+err.Error(), notes))
}

// Failure returns the error of a state that Failing has made; nil for any other state. It is for diagnostics.
func Failure(s balancer.State) error {
	if f, ok := s.Picker.(failing); ok {
		return f.err
	}
	return nil
}
