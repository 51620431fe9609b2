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

// ErrNoAnswer is the reason if the server ended a stream with OK.
var ErrNoAnswer = errors.New("the server ended the stream without an error")

// MaxServerText bounds what is passed on of a server's status message.
const MaxServerText = 1 << 10

// Reason says why a stream failed, without the decoration that gRPC adds, and
// with no more of the server's text than is fit for errors.
func Reason(err error) error {
	if s, ok := status.FromError(err); ok {
		return fmt.Errorf("%s: %s", s.Code(), faults.Shorten(s.Message(), MaxServerText))
	}
	return errors.New(faults.Shorten(err.Error(), MaxServerText))
}
