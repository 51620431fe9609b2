package controlplane

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	clientkind "github.com/dynxds/dynxds/internal/dialect"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// entry is one variant of a name: a resource, the error in its place (xRFC TP3), or a function that
// returns either for each client. It is immutable, and shared by all streams.
type entry struct {
	resource *Resource
	err      *resourceError
	// beside is an error that goes with a resource, which stays in use. nil: there is none.
	beside *resourceError
	// whole is set for an error in place of all variants.
	whole bool
	// computed is the function of a computed resource, for DPDS; see Tx.SetDPDS.
	computed *computation
}

// sameBytes compares two entries of the store with equal parameters; both may be nil.
func (e *entry) sameBytes(o *entry) bool {
	return e == o || e != nil && o != nil && e.whole == o.whole && e.beside.same(o.beside) && e.sameVersion(o)
}

// sameVersion reports whether a client that has e need not be sent o. Of a claim only the version is known. Of resources the
// bytes are compared: a version given to [NewResource] is of another control plane, which may have corrected the bytes under it.
func (e *entry) sameVersion(o *entry) bool {
	switch {
	case e == o:
		return true
	case e.claimed():
		return o.resource != nil && e.resource.version == o.resource.version
	case e.resource != nil:
		return e.resource.sameBytes(o.resource)
	case e.err != nil:
		return o.err != nil && e.err.version == o.err.version
	default:
		return false
	}
}

// name returns the name as it was spelled when the entry was stored. Absence, and what is computed, have none.
func (e *entry) name() string {
	switch {
	case e.resource != nil:
		return e.resource.name
	case e.err != nil:
		return e.err.name
	default:
		return ""
	}
}

func (e *entry) asResource() *Resource {
	if e == nil {
		return nil
	}
	return e.resource
}

func (e *entry) isComputed() bool { return e != nil && e.computed != nil }

func (e *entry) asError() *status.Status {
	if e == nil || e.err == nil {
		return nil
	}
	return e.err.status
}

// parameters returns the dynamic parameters of the variant.
func (e *entry) parameters() dynparam.Parameters {
	switch {
	case e.resource != nil:
		return e.resource.parameters
	case e.err != nil:
		return e.err.parameters
	default:
		return dynparam.Parameters{}
	}
}

// key returns the key of the parameters.
func (e *entry) key() string { return e.parameters().Key() }

// resourceError is the error in place of a resource, or of a glob collection.
type resourceError struct {
	name       string
	parameters dynparam.Parameters
	status     *status.Status
	detail     *statuspb.Status
	version    string
	// unreachable is set if a relay says by the error that its management servers are unreachable.
	unreachable bool
	// absent is set for an error of Options.NotFoundErrors.
	absent bool
}

// same reports whether two errors are equal; each may be nil.
func (e *resourceError) same(o *resourceError) bool {
	return e == o || e != nil && o != nil && e.version == o.version
}

// newResourceError returns an error if st cannot be sent.
func newResourceError(name string, st *status.Status) (*resourceError, error) {
	if st.Code() == codes.OK {
		return nil, errors.New("the status is OK; an error needs another code")
	}
	detail := st.Proto()
	wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(detail)
	if err != nil {
		return nil, fmt.Errorf("serializing the status: %w", err)
	}
	sum := sha256.Sum256(wire)
	return &resourceError{
		name: name, status: st, detail: detail, version: hex.EncodeToString(sum[:8]), unreachable: clientkind.SaysUnreachable(detail),
	}, nil
}

// errorEntry returns the entry of an error. An error that cannot be sent is replaced by another error.
func errorEntry(name string, st *status.Status) *entry {
	e, err := newResourceError(name, st)
	if err != nil {
		e, _ = newResourceError(name, status.Newf(codes.Internal, "the error of %q cannot be sent", name))
	}
	return &entry{err: e}
}

// statusOf returns the status to send for an error.
func statusOf(err error) *status.Status {
	st := status.Convert(err)
	if st.Code() == codes.OK {
		st = status.New(codes.Unknown, fmt.Sprint(err))
	}
	return st
}

// notFound is the error for a name that does not exist.
func notFound(typeURL, name string) *resourceError {
	st := status.Newf(codes.NotFound, "the control plane has no resource %q of type %s", name, typeURL)
	return &resourceError{name: name, status: st, detail: st.Proto(), absent: true}
}

// message returns the error for a subscription.
func (e *resourceError) message(of *discoverypb.ResourceName) *discoverypb.ResourceError {
	return &discoverypb.ResourceError{ResourceName: of, ErrorDetail: e.detail}
}
