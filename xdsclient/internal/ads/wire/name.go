package wire

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/protofield"
)

// ResourceName is how a server names a subscription in a response. It refers to the bytes
// of the message.
type ResourceName struct {
	Name []byte
	// Constraints are the serialized constraints of the subscription if Scoped is set; else
	// all subscriptions to the name are meant.
	Constraints []byte
	Scoped      bool
	// Err says why the name cannot be read.
	Err error
}

// ResourceError is the error that a server sends in place of a resource (xRFC TP3). It
// refers to the bytes of the message.
type ResourceError struct {
	// Index is the place of the error in the response.
	Index int
	ResourceName
	code    int32
	message []byte
	status  []byte
}

var errNoName = errors.New("it names no resource")

// readLocator reads an envoy.service.discovery.v3.ResourceName.
func readLocator(_ int, b []byte) (n ResourceName) {
	if n.Err = n.merge(b); n.Err == nil && len(n.Name) == 0 {
		n.Err = errNoName
	}
	return n
}

// merge reads an envoy.service.discovery.v3.ResourceName. As in every message, the last occurrence of a field wins; that of
// the constraints too, which a peer sends once.
func (n *ResourceName) merge(b []byte) error {
	return protofield.Each(b, "envoy.service.discovery.v3.ResourceName", func(f protofield.Field) error {
		switch {
		case f.Kind != protowire.BytesType:
		case f.Number == 1 && !utf8.Valid(f.Value):
			return errors.New("not valid UTF-8")
		case f.Number == 1:
			n.Name = f.Value
		case f.Number == 2:
			n.Constraints, n.Scoped = f.Value, true
		}
		return nil
	})
}

// readError reads an envoy.service.discovery.v3.ResourceError.
func readError(index int, b []byte) ResourceError {
	e := ResourceError{Index: index}
	if e.Err = e.merge(b); e.Err == nil && len(e.Name) == 0 {
		e.Err = errNoName
	}
	return e
}

// merge reads an envoy.service.discovery.v3.ResourceError.
func (e *ResourceError) merge(b []byte) error {
	return protofield.Each(b, "envoy.service.discovery.v3.ResourceError", func(f protofield.Field) (err error) {
		switch {
		case f.Kind != protowire.BytesType:
		case f.Number == 1:
			if err = e.ResourceName.merge(f.Value); err != nil {
				err = fmt.Errorf("resource_name: %w", err)
			}
		case f.Number == 2:
			e.status = f.Value
			if err = e.mergeStatus(f.Value); err != nil {
				err = fmt.Errorf("error_detail: %w", err)
			}
		}
		return err
	})
}

// mergeStatus reads a google.rpc.Status.
func (e *ResourceError) mergeStatus(b []byte) error {
	return protofield.Each(b, "google.rpc.Status", func(f protofield.Field) error {
		switch {
		case f.Number == 1 && f.Kind == protowire.VarintType:
			e.code = int32(f.Varint)
		case f.Number == 2 && f.Kind == protowire.BytesType:
			e.message = f.Value
		}
		return nil
	})
}

// Status returns the google.rpc.Status of the error in serialized form, or nil if it is too large
// to be kept.
func (e *ResourceError) Status() []byte {
	if len(e.status) > maxStatus {
		return nil
	}
	return bytes.Clone(e.status)
}

// maxStatus bounds a status that is kept, in bytes.
const maxStatus = 8 << 10

// Reason returns the code and the text of the error. A code that gRPC does not have, and OK,
// which is no error, become UNKNOWN.
func (e *ResourceError) Reason() (codes.Code, error) {
	code, text := codes.Code(e.code), cmp.Or(bounds.Text(string(e.message), bounds.ErrorText), "the server gives no reason")
	if e.code <= int32(codes.OK) || e.code > int32(codes.Unauthenticated) {
		code, text = codes.Unknown, fmt.Sprintf("code %d: %s", e.code, text)
	}
	if code == codes.NotFound {
		text = "does not exist: " + text
	}
	return code, errors.New(text)
}
