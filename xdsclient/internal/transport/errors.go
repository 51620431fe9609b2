package transport

import (
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/bounds"
)

// StreamDesc describes the streams to a management server, which are bidirectional.
var StreamDesc = &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}

// ErrNoAnswer is the reason for the end of a stream that the server ended with OK.
var ErrNoAnswer = errors.New("the server ended the stream without an error")

// Reason says why a stream failed: ErrNoAnswer, or code and message of the status, without the decoration
// that gRPC adds. The message is cut (bounds.ErrorText).
func Reason(err error) error {
	if errors.Is(err, ErrNoAnswer) {
		return ErrNoAnswer
	}
	if s, ok := status.FromError(err); ok {
		return fmt.Errorf("%s: %s", s.Code(), bounds.Text(s.Message(), bounds.ErrorText))
	}
	return errors.New(bounds.Text(err.Error(), bounds.ErrorText))
}
