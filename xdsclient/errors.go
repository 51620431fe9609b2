package xdsclient

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// ErrorKind says what an Error reports, as logs name it.
type ErrorKind string

const (
	// KindDoesNotExist: the server said that it does not have the resource: it deleted it,
	// sent the code NOT_FOUND (xRFC TP3), named it as removed (delta), or sent its full state without
	// it (SotW). For a SotW type without a full state, such as RouteConfiguration, it is enough that the
	// server sent others, and not this one in time (gRFC A57, "Handling Resources That Do Not Exist").
	KindDoesNotExist ErrorKind = "does not exist"
	// KindInvalid: the resource that the server sent does not validate and was
	// NACKed (gRFC A46). Error.Err lists the errors.
	KindInvalid ErrorKind = "invalid"
	// KindServer: the server reported an error for the resource other than that
	// it does not exist (xRFC TP3). Error.Code is the code it gave.
	KindServer ErrorKind = "server error"
	// KindUnreachable: the server cannot be reached, or ended the stream before
	// it answered (gRFC A57). Or it is a relay, and says so of its own servers
	// with UNAVAILABLE (xRFC TP3) and the detail that Error.Status has.
	KindUnreachable ErrorKind = "unreachable"
	// KindTimeout: the server did not send the resource in time, nor did it say that the
	// resource does not exist. Or its bootstrap entry has
	// resource_timer_is_transient_error (gRFC A88), by which a timer never means that. Or it is a
	// relay, and says so of its own server with UNAVAILABLE (xRFC TP3) and the detail that Error.Status has.
	KindTimeout ErrorKind = "timeout"
	// KindConfiguration: the watch cannot be served with this bootstrap, for
	// example because the resource's authority is unknown.
	KindConfiguration ErrorKind = "configuration"
)

// kinds has, of each kind, the state of a resource after an error that the client found, the code of the error unless the server
// gave another, and what a reader of the error can do about it.
var kinds = map[ErrorKind]struct {
	state  CacheState
	code   codes.Code
	wayOut string
}{
	KindDoesNotExist:  {StateDoesNotExist, codes.NotFound, "check that the control plane has it for this node"},
	KindInvalid:       {StateNACKed, codes.Unavailable, "correct it in the control plane"},
	KindServer:        {StateReceivedError, codes.Unavailable, "the control plane knows why"},
	KindUnreachable:   {"", codes.Unavailable, "check that the server runs, and server_uri and channel_creds in the xDS bootstrap"},
	KindTimeout:       {StateTimeout, codes.Unavailable, "check that the control plane is not overloaded, and that it has the resource: some never say that they do not"},
	KindConfiguration: {StateRequested, codes.Unavailable, "check the xDS bootstrap"},
}

// Error is what a watcher gets instead of, or beside, a resource. It is
// immutable and may be shared by watchers.
type Error struct {
	Kind ErrorKind
	// Code is the code that the server sent for KindServer, Unknown if it is
	// none of gRPC's; NotFound for KindDoesNotExist; and Unavailable for every
	// other kind. It is not meant for RPCs: those fail with
	// UNAVAILABLE, whatever a control plane says (gRFC A54).
	Code codes.Code
	// TypeName is ResourceType.Name.
	TypeName string
	// Resource is the name of the resource, and Constraints are those that choose
	// among its variants, if there are any (xRFC TP2).
	Resource    string
	Constraints dynparam.Constraints
	// Server is the URI of the management server. It is empty if none was asked
	// (KindConfiguration). If several cannot be reached it is their list, with a
	// comma and a space in between, the preferred one first.
	Server string
	// NodeID is Node.id of the bootstrap, by which the control plane knows this
	// client. It may be empty.
	NodeID string
	// Err is the reason. It is never nil.
	Err error
	// Transient: the error says nothing of the resource (gRFC A88, transient errors), so that a configuration in
	// use may wait for it. The server is unreachable, or it is late, and its bootstrap entry has
	// resource_timer_is_transient_error: it would say that it lacks the resource.
	Transient bool

	// status is what the server sent (xRFC TP3), serialized, or nil.
	status []byte
	// stamp is that of the response with the error, or of the moment.
	stamp stamp
	// state is that of the resource, and withdraws says that its last version is no longer to be used.
	state     CacheState
	withdraws bool
}

// Error names the resource, the reason, the server and the node, and the way
// out.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "xDS %s %s", e.TypeName, bounds.Quote(e.Resource))
	if !e.Constraints.IsZero() {
		fmt.Fprintf(&b, " with %v", e.Constraints)
	}
	switch e.Kind {
	case KindInvalid:
		b.WriteString(" is invalid")
	case KindServer:
		fmt.Fprintf(&b, ": error %s from the management server", e.Code)
	case KindUnreachable:
		switch {
		case e.several():
			b.WriteString(": no management server is reachable")
		case errors.Is(e.Err, transport.ErrNotXDS):
			b.WriteString(": the management server cannot be used")
		default:
			b.WriteString(": the management server is unreachable")
		}
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	switch {
	case e.several():
		fmt.Fprintf(&b, " (management servers %s, node id %q)", e.Server, e.NodeID)
	case e.Server != "":
		fmt.Fprintf(&b, " (management server %s, node id %q)", e.Server, e.NodeID)
	}
	if way := e.wayOut(); way != "" {
		b.WriteString("; " + way)
	}
	return b.String()
}

// wayOut is what a reader of the error can do about it, or "" if its reason says that.
func (e *Error) wayOut() string {
	if e.Kind == KindUnreachable && errors.Is(e.Err, transport.ErrNoAnswer) {
		return streamTaken
	}
	if e.Kind == KindUnreachable && errors.Is(e.Err, transport.ErrNotXDS) {
		return "give server_uri in the xDS bootstrap the address of the control plane; this may be that of a backend"
	}
	var reason interface{ Suggested() bool } // faults.Faults
	if e.Kind == KindInvalid && errors.As(e.Err, &reason) && reason.Suggested() {
		return ""
	}
	return cmp.Or(kinds[e.Kind].wayOut, kinds[KindConfiguration].wayOut)
}

// streamTaken is the way out where a server ends streams without an error right after they were opened.
const streamTaken = "another xDS client of this pod may have taken the server's only stream, as Istio's agent has one: have the clients share a stream by a relay (docs/tasks/relay.md)"

// Time is when the server said what the error is about, or when the error was found.
func (e *Error) Time() time.Time { return e.stamp.time() }

// Status is the error as a server says it in place of a resource (xRFC TP3): what the management
// server sent, with its details, if sent is true, or else Code and the reason. That of
// KindUnreachable or KindTimeout has a google.rpc.ErrorInfo, by which a client of a relay knows the kind.
func (e *Error) Status() (st *status.Status, sent bool) {
	if e.status != nil {
		m := new(statuspb.Status)
		if err := proto.Unmarshal(e.status, m); err == nil && codes.Code(m.GetCode()) == e.Code {
			return status.FromProto(m), true
		}
	}
	st = status.New(e.Code, e.Err.Error())
	switch e.Kind {
	case KindUnreachable:
		st, _ = st.WithDetails(dialect.Unreachable()) // the code is not OK
	case KindTimeout:
		st, _ = st.WithDetails(dialect.Silent())
	}
	return st, false
}

// kindOf returns the kind of an error that a server sent in place of a resource, as a serialized
// status with this code.
func kindOf(code codes.Code, sent []byte) ErrorKind {
	switch code {
	case codes.NotFound:
		return KindDoesNotExist
	case codes.Unavailable:
		m := new(statuspb.Status)
		switch err := proto.Unmarshal(sent, m); {
		case err != nil:
		case dialect.SaysUnreachable(m):
			return KindUnreachable
		case dialect.SaysSilent(m):
			return KindTimeout
		}
	}
	return KindServer
}

// tellsOfNoAnswer reports whether such an error says that no server has answered for the resource.
func (k ErrorKind) tellsOfNoAnswer() bool { return k == KindUnreachable || k == KindTimeout }

// tellsOfNoAnswer reports whether a response has nothing but errors by which a relay says that its own servers have not
// answered.
func tellsOfNoAnswer(resp *wire.Response) bool {
	if !resp.HasErrors() || resp.HasAnswers() {
		return false
	}
	for e := range resp.Errors {
		if code, _ := e.Reason(); e.Err != nil || !kindOf(code, e.Status()).tellsOfNoAnswer() {
			return false
		}
	}
	return true
}

// several reports whether Server is a list. A URI has no white space.
func (e *Error) several() bool { return strings.Contains(e.Server, " ") }

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// about returns the same error for another resource.
func (e *Error) about(r *resource) *Error {
	other := *e
	other.Resource, other.Constraints = r.key.name, r.watchedEntry().constraints
	return &other
}

// same reports whether f after e would tell a watcher nothing new.
func (e *Error) same(f *Error) bool {
	return e != nil && f != nil && e.Kind == f.Kind && e.Code == f.Code && e.Server == f.Server && e.Err.Error() == f.Err.Error()
}

// final reports whether the error is a server's final answer for a resource, for which there
// is no reason to try another server. There may be no error.
func (e *Error) final() bool {
	return e != nil && (e.Kind == KindDoesNotExist || e.Kind == KindServer && e.Code == codes.PermissionDenied)
}
