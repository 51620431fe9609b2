package memnet

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

const here = "here"

// pair connects the host "here" to a new address.
func pair(t *testing.T, n *Network) (client, server net.Conn, addr string) {
	t.Helper()
	addr = n.Reserve()
	l, err := n.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if client, err = n.Dial(t.Context(), here, addr); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return client, server, addr
}

// expect reads a text, and checks how long that takes.
func expect(t *testing.T, c net.Conn, want string, after time.Duration) {
	t.Helper()
	begin := time.Now()
	b := make([]byte, len(want))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != want {
		t.Errorf("read %q, %v; want %q", b, err, want)
	}
	if took := time.Since(begin); took != after {
		t.Errorf("%q arrived after %v, want %v", want, took, after)
	}
}

// Each direction has its latency, bytes stay in order, and an end that closes is heard of last: until then the other end
// can write. Without that gRPC tries an RPC again and again on a connection which it has not seen end, and no time passes.
func TestLatency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New()
		client, server, addr := pair(t, n)
		n.SetLatency(here, addr, 3*time.Second, 5*time.Second)
		client.Write([]byte("one"))
		n.SetLatency(here, addr, time.Second, 5*time.Second)
		client.Write([]byte("two"))
		expect(t, server, "onetwo", 3*time.Second)
		server.Write([]byte("answer"))
		server.Close()
		if _, err := client.Write([]byte("unread")); err != nil {
			t.Errorf("writing before the end is heard of: %v", err)
		}
		expect(t, client, "answer", 5*time.Second)
		if _, err := client.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("after the end: %v, want EOF", err)
		}
		if _, err := server.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// What is sent over a path that is cut arrives when it is whole again; dialling waits as well.
func TestCut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New()
		client, server, addr := pair(t, n)
		n.Cut(here, addr)
		client.Write([]byte("late"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.Dial(ctx, here, addr); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dialling: %v, want DeadlineExceeded", err)
		}
		time.AfterFunc(time.Minute, func() { n.Mend(here, addr) })
		expect(t, server, "late", time.Minute)
	})
}

// A reset ends both ends, and a server that has stopped refuses connections.
func TestReset(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New()
		client, server, addr := pair(t, n)
		if open := n.Reset(here, addr); open != 1 {
			t.Errorf("%d connections were reset, want 1", open)
		}
		for _, c := range []net.Conn{client, server} {
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("reading: %v", err)
			}
			if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("writing: %v", err)
			}
		}
		if open := n.Reset(here, addr); open != 0 {
			t.Errorf("%d connections are open", open)
		}
		if _, err := n.Dial(t.Context(), here, n.Reserve()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dialling where nobody listens: %v", err)
		}
	})
}

// A lost connection carries nothing, and nobody hears of that. New ones do.
func TestLose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New()
		client, server, addr := pair(t, n)
		client.Write([]byte("under way"))
		if open := n.Lose(here, addr); open != 1 {
			t.Errorf("%d connections were lost, want 1", open)
		}
		if _, err := client.Write([]byte("more")); err != nil {
			t.Errorf("writing: %v", err)
		}
		client.Close()
		server.SetReadDeadline(time.Now().Add(time.Hour))
		if _, err := server.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("reading: %v", err)
		}
		if _, err := n.Dial(t.Context(), here, addr); err != nil {
			t.Errorf("dialling: %v", err)
		}
	})
}

// A read ends at its deadline.
func TestDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, _, _ := pair(t, New())
		client.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("reading: %v", err)
		}
	})
}
