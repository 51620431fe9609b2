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
