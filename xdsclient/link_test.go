package xdsclient

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/internal/xdstest"
)

var errTest = errors.New("test")

// A program may set another limit than the client's.
func TestMessageSizeLimit(t *testing.T) {
	(&transcriptTest{over: "SotW", then: func(x *transcript) {
		c, err := New(x.c.config, Options{Dial: []grpc.DialOption{
			grpc.WithContextDialer(fleet{x.servers[0].script}.dial), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1000)),
		}})
		xdstest.NoError(t, err)
		defer c.Close()
		y := x.beside(c, c)
		y.run("watch a -> stream; req a\nsend 1 a=<<x*1000>> -> closed; a: unreachable")
		if text := y.ask("text a"); !strings.Contains(text[0], "ResourceExhausted") {
			t.Errorf("got %v, want RESOURCE_EXHAUSTED", text)
		}
	}}).run(t)
}

// A resource timer may fire when another one has just replaced it: the stream ended, and another one is open.
func TestOneResourceTimer(t *testing.T) {
	(&transcriptTest{over: "SotW", steps: "watch a -> stream; req a", then: func(x *transcript) {
		for _, ch := range x.c.channels {
			timer := ch.expiry.timer
			ch.expire()
			if timer.Stop() {
				t.Error("the channel has a second timer")
			}
		}
		x.run("wait 15s -> a: timeout")
	}}).run(t)
}
