package xdsclient

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// A decoder learns that its client is closed. What it then says of the resource is not taken for a
// fault, and it is not asked for the rest of the response.
func TestCloseEndsDecoding(t *testing.T) {
	t.Parallel()
	types, begun := newTestTypes(), make(chan struct{})
	types.endpoints.Decode = func(a *anypb.Any, o DecodeOptions) (any, error) {
		if types.decoded.Add(1) == 1 {
			close(begun)
		}
		<-o.Done
		return nil, errors.New("it was not decoded")
	}
	server := xdstest.StartServer(t)
	c := quickClient(t, server)
	server.Set(t, endpoints("a"), endpoints("b"))
	c.Batch(func() { listenBoth(t, c, types.endpoints, "a", "b") })
	<-begun
	c.Close()
	types.wantDecoded(t, 1)
	if got := c.Stats().Rejected; got != 0 {
		t.Errorf("%d responses were rejected", got)
	}
}
