package loopback_test

import (
	"os"
	"testing"

	"github.com/dynxds/dynxds/internal/loopback"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// An address can be listened on again at once, even while a process that is being started holds the old socket.
func TestAddress_ListenAgainWhileTheSocketIsHeld(t *testing.T) {
	addr, err := loopback.Reserve()
	xdstest.NoError(t, err)
	first, err := addr.Listen()
	xdstest.NoError(t, err)
	held, err := first.(interface{ File() (*os.File, error) }).File()
	xdstest.NoError(t, err)
	defer held.Close()
	xdstest.NoError(t, first.Close())
	again, err := addr.Listen()
	xdstest.NoError(t, err)
	xdstest.NoError(t, again.Close())
	addr.Release()
	other, err := os.Open(os.DevNull) // gets the descriptor of the socket
	xdstest.NoError(t, err)
	addr.Release()
	xdstest.NoError(t, other.Close())
}
