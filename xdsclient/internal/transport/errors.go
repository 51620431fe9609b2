package transport

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/tlsadvice"
)

// StreamDesc describes the streams to a management server, which are bidirectional.
var StreamDesc = &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}

// ErrNoAnswer is the reason for the end of a stream that the server ended with OK.
var ErrNoAnswer = errors.New("the server ended the stream without an error")

// ErrNotXDS is the reason for the end of a stream to a gRPC server that has no xDS, such as that of an application.
var ErrNotXDS = errors.New("it answers gRPC, but is no xDS server")

// ADSReason is Reason for a stream of ADS. UNIMPLEMENTED that the server itself sent is ErrNotXDS: gRPC makes it also of an
// HTTP status, which a proxy may have sent.
func ADSReason(err error) error {
	reason := Reason(err)
	if s, ok := status.FromError(err); ok && s.Code() == codes.Unimplemented && !strings.HasPrefix(s.Message(), "unexpected HTTP status") {
		return fmt.Errorf("%w (%w)", ErrNotXDS, reason)
	}
	return reason
}

// Reason says why a stream failed: ErrNoAnswer, or code and message of the status, without the decoration
// that gRPC adds. The message is cut (bounds.ErrorText).
func Reason(err error) error {
	if errors.Is(err, ErrNoAnswer) {
		return ErrNoAnswer
	}
	if s, ok := status.FromError(err); ok {
		return fmt.Errorf("%s: %s", s.Code(), bounds.Text(tlsadvice.Reason(s.Message()), bounds.ErrorText))
	}
	return errors.New(bounds.Text(err.Error(), bounds.ErrorText))
}
