package transport

import (
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/faults"
)

// StreamDesc describes the streams to a management server, which are bidirectional.
var StreamDesc = &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}

// ErrNoAnswer is the reason for the end of a stream that the server ended with OK.
var ErrNoAnswer = errors.New("the server ended the stream without an error")

// MaxServerText bounds a server's status message in errors, in bytes.
const MaxServerText = 1 << 10

// Reason says why a stream failed: code and message of the status, without the decoration
// that gRPC adds. The message is shortened to MaxServerText.
func Reason(err error) error {
	if s, ok := status.FromError(err); ok {
		return fmt.Errorf("%s: %s", s.Code(), faults.Shorten(s.Message(), MaxServerText))
	}
	return errors.New(faults.Shorten(err.Error(), MaxServerText))
}
