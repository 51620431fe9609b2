package ads

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// ErrBetter is the reason for the end of a stream whose server implements a better protocol by now.
var ErrBetter = errors.New("the server implements a better protocol")

// tryTime is how long a stream of a better protocol has to stay open, unless the server sends something, for
// the server to implement it. Who does not implement it says so within a round trip.
const tryTime = 5 * time.Second

// goTryBetter tries a better protocol, if there is one, beside the open stream and on its connection, until the
// server implements it, which ends the stream, or the context ends. Then done is closed.
func (s *Stream) goTryBetter(ctx context.Context, cc *grpc.ClientConn, end context.CancelCauseFunc) (done <-chan struct{}) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			p, at := s.handler.Better()
			if p == nil {
				return
			}
			transport.Rest(ctx, time.Until(at))
			implemented := try(ctx, cc, p)
			if ctx.Err() != nil {
				return
			}
			if s.handler.Tried(implemented); implemented {
				end(ErrBetter)
				return
			}
		}
	}()
	return ended
}

// try reports whether a server keeps a stream of a protocol open. It asks for nothing.
func try(ctx context.Context, cc *grpc.ClientConn, p wire.Protocol) bool {
	within, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	stream, err := cc.NewStream(within, transport.StreamDesc, p.Method(), grpc.ForceCodecV2(transport.Codec{}))
	if err != nil {
		return false
	}
	var f transport.Frame
	if err := stream.RecvMsg(&f); err != nil {
		return within.Err() != nil
	}
	f.Free()
	return true
}
