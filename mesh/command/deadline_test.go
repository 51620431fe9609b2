package command

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
)

// mute starts a server that accepts connections and never says anything, and returns its address.
func mute(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(t, err)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
		}
	})
	t.Cleanup(func() {
		listener.Close()
		accepting.Wait()
	})
	return listener.Addr().String()
}

// unanswering starts a gRPC server that accepts every RPC and never answers.
func unanswering(t *testing.T) string {
	t.Helper()
	return cmdtest.Serve(t, func(*grpc.Server) {}, grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		<-stream.Context().Done()
		return stream.Context().Err()
	}))
}

// Every command that asks another process ends when it gets no answer, and says whom it has asked, and
// which flag allows more time.
func TestCommandsEndWithoutAnswer(t *testing.T) {
	t.Parallel()
	password := filepath.Join(t.TempDir(), "password")
	xdstest.NoError(t, os.WriteFile(password, []byte("secret\n"), 0o600))
	const (
		ask   = " --timeout 300ms"
		store = " --store etcd://ADDRESS/mesh --store-timeout 300ms"
		login = " --store-user ada --store-password-file PASSWORD"
	)
	for name, address := range map[string]string{"a server that says nothing": mute(t), "a gRPC server that does not answer": unanswering(t)} {
		for _, line := range []string{
			"status ADDRESS" + ask,
			"explain ADDRESS xds:///backend /pkg.Service/Method" + ask,
			"apply DIR" + store,
			"apply DIR --dry-run" + store,
			"apply DIR" + store + login,
			"clients" + store,
		} {
			t.Run(name+"/"+line, func(t *testing.T) {
				t.Parallel()
				endsWithoutAnswer(t, address, strings.NewReplacer("ADDRESS", address, "DIR", exampleMesh, "PASSWORD", password).Replace(line))
			})
		}
	}
	address := mute(t)
	t.Run("clients", func(t *testing.T) {
		t.Parallel()
		endsWithoutAnswer(t, address, "clients --admin "+address+ask)
	})
}

func endsWithoutAnswer(t *testing.T, address, line string) {
	t.Helper()
	flag := "--timeout"
	if strings.Contains(line, "--store-timeout") {
		flag = "--store-timeout"
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var stdout, stderr strings.Builder
	exit := execute(ctx, strings.Fields(line), &stdout, &stderr)
	if ctx.Err() != nil {
		t.Fatal("it did not end in a minute")
	}
	if text := stderr.String(); exit != 3 || !strings.Contains(text, address) || !strings.Contains(text, flag+" ") {
		t.Errorf("exit status %d, want 3 and an error that names %s and %s:\n%s", exit, address, flag, text)
	}
}
