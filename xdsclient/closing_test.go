package xdsclient

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// After a client is closed, what a decoder says of a resource is not taken for a
// fault, and it is not asked for the rest of the response.
func TestCloseEndsDecoding(t *testing.T) {
	t.Parallel()
	types, begun := newTestTypes(), make(chan struct{})
	var closed <-chan struct{}
	types.endpoints.Decode = func(*anypb.Any, DecodeOptions) (any, error) {
		if types.decoded.Add(1) == 1 {
			close(begun)
		}
		<-closed
		return nil, errors.New("it was not decoded")
	}
	server := xdstest.StartServer(t)
	c := quickClient(t, server)
	closed = c.ctx.Done()
	server.Set(t, endpoints("a"), endpoints("b"))
	c.Batch(func() { listenBoth(t, c, types.endpoints, "a", "b") })
	<-begun
	c.Close()
	xdstest.Equal(t, "resources decoded", 1, types.decoded.Load())
	if got := c.Stats().Rejected; got != 0 {
		t.Errorf("%d responses were rejected", got)
	}
}
