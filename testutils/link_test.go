package testutils_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// overLink returns both ends of a connection over a link: the client's and the server's.
func overLink(t *testing.T, link *testutils.Link) (client, server net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(t, err)
	client, err = net.Dial("tcp", listener.Addr().String())
	xdstest.NoError(t, err)
	server, err = link.Listener(listener).Accept()
	xdstest.NoError(t, err)
	t.Cleanup(func() {
		client.Close()
		server.Close()
		listener.Close()
		link.Wait()
	})
	return client, server
}

// Either direction has a delay of its own, before which nothing arrives.
func TestLink_DelaysEachDirection(t *testing.T) {
	t.Parallel()
	const delay = 50 * time.Millisecond
	for _, tt := range []struct {
		name               string
		toServer, toClient time.Duration
	}{
		{"both", delay, delay}, {"to the server", delay, 0}, {"to the client", 0, delay}, {"neither", 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			client, server := overLink(t, xdstest.SlowLink(tt.toServer, tt.toClient))
			begin := time.Now()
			exchange(t, client, server, "request")
			middle := time.Now()
			exchange(t, server, client, "response")
			if took := middle.Sub(begin); took < tt.toServer {
				t.Errorf("the request arrived after %v, want %v at least", took, tt.toServer)
			}
			if took := time.Since(middle); took < tt.toClient {
				t.Errorf("the response arrived after %v, want %v at least", took, tt.toClient)
			}
		})
	}
}

func exchange(t *testing.T, from, to net.Conn, text string) {
	t.Helper()
	_, err := from.Write([]byte(text))
	xdstest.NoError(t, err)
	got := make([]byte, len(text))
	if _, err := io.ReadFull(to, got); err != nil || string(got) != text {
		t.Fatalf("got %q, error %v; want %q", got, err, text)
	}
}

// Everything arrives as it was sent, whatever happens to the delay meanwhile, and more
// is under way than one write.
func TestLink_KeepsOrderAndBandwidth(t *testing.T) {
	t.Parallel()
	const writes, delay = 200, 100 * time.Millisecond
	for _, toServer := range []bool{true, false} {
		link := xdstest.SlowLink(delay, delay)
		client, server := overLink(t, link)
		from, to := server, client
		if toServer {
			from, to = client, server
		}
		var sent bytes.Buffer
		var sending sync.WaitGroup
		begin := time.Now()
		sending.Go(func() {
			for i := range writes {
				if i == writes/2 {
					link.SetDelay(0, 0)
				}
				b := make([]byte, 1+rand.IntN(1<<10))
				for i := range b {
					b[i] = byte(rand.Uint32())
				}
				sent.Write(b)
				if _, err := from.Write(b); err != nil {
					t.Error(err)
				}
			}
			from.Close()
		})
		got, err := io.ReadAll(to)
		sending.Wait()
		if err != nil || !bytes.Equal(got, sent.Bytes()) {
			t.Errorf("%d bytes arrived, error %v; want the %d that were sent", len(got), err, sent.Len())
		}
		// One after the other they would take 10 seconds.
		if took := time.Since(begin); took >= writes/2*delay {
			t.Errorf("%d writes took %v: each waited for the one before", writes, took)
		}
	}
}

// A client that does not read does not make the server's side grow without bound.
func TestLink_IsBounded(t *testing.T) {
	t.Parallel()
	_, server := overLink(t, new(testutils.Link))
	const limit = 64 << 20
	var accepted atomic.Int64
	full := make(chan error, 1)
	go func() {
		for accepted.Load() < limit {
			n, err := server.Write(make([]byte, 1<<20))
			accepted.Add(int64(n))
			if err != nil {
				full <- err
				return
			}
		}
		full <- nil
	}()
	select {
	case err := <-full:
		t.Fatalf("the link accepted %d unread bytes, error %v", accepted.Load(), err)
	case <-time.After(200 * time.Millisecond):
	}
	server.Close()
	if err := <-full; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a write ended with %v after %d bytes, want io.ErrClosedPipe", err, accepted.Load())
	}
}

// A write on a closed connection says so, whatever became of the client before.
func TestLink_WriteAfterClose(t *testing.T) {
	t.Parallel()
	client, server := overLink(t, new(testutils.Link))
	client.Close()
	for {
		if _, err := server.Write([]byte("response")); err != nil {
			break
		}
	}
	server.Close()
	if _, err := server.Write([]byte("response")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the write ended with %v, want io.ErrClosedPipe", err)
	}
}
