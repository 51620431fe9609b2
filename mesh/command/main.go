// Package command is the command dynxds: a control plane for gRPC clients, with the tools for it.
//
//   - "dynxds serve" serves xDS from a folder of services and MeshHTTPRoute policies, or from etcd, "dynxds
//     validate" checks such a folder, "dynxds render" shows what a client would get, and why;
//   - "dynxds apply" writes the documents of several replicas into etcd;
//   - "dynxds bootstrap" writes a client's bootstrap file for a control plane;
//   - "dynxds doctor" finds the step at which RPCs fail, and says what to do;
//   - "dynxds status" shows the resources of a running client, "dynxds explain" says where an RPC of
//     a client goes, and why;
//   - "dynxds clients" shows what the clients of control planes have accepted and rejected;
//   - "dynxds demo" runs a control plane, backends and a client in one process; with --page it
//     shows a status page, as "dynxds serve" does.
//
// "dynxds help" lists the commands with their flags, docs/reference/folder.md describes the folder. The
// logic is in the packages below internal.
package command

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"google.golang.org/grpc/grpclog"

	_ "github.com/dynxds/dynxds/balancer/rls" // RouteConfigurations may have its plugin
	"github.com/dynxds/dynxds/mesh/internal/cmdline"
	"github.com/dynxds/dynxds/mesh/internal/repeatlog"
)

// Main runs the command line of the process, and exits with its status.
func Main() {
	quietGRPC()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs the command line and returns the exit status.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return cmdline.Execute(ctx, newRoot(), withAddresses(args), stdout, stderr)
}

// withAddresses joins "--page" and "--admin", whose addresses may be left out, with an address that follows, as pflag
// takes one only behind "=".
func withAddresses(args []string) (joined []string) {
	for i, arg := range args {
		if i > 0 && (args[i-1] == "--page" || args[i-1] == "--admin") && isAddress(arg) {
			joined[len(joined)-1] += "=" + arg
		} else {
			joined = append(joined, arg)
		}
	}
	return joined
}

// isAddress reports whether an argument is HOST:PORT, and no file.
func isAddress(arg string) bool {
	_, port, _ := net.SplitHostPort(arg) // of anything else the port is empty
	_, err := strconv.ParseUint(port, 10, 16)
	_, missing := os.Lstat(arg)
	return err == nil && missing != nil
}

// clientLog is gRPC's log, to which dynxds's xDS client writes too. What that says goes to the log of the command
// that runs such clients; the rest is discarded.
type clientLog struct {
	grpclog.LoggerV2
	to atomic.Pointer[slog.Logger]
}

// xdsLog is gRPC's log for the whole process; see quietGRPC.
var xdsLog = clientLog{LoggerV2: grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)}

// quietGRPC keeps gRPC's log from standard error unless the environment enables it.
func quietGRPC() {
	if os.Getenv("GRPC_GO_LOG_SEVERITY_LEVEL") == "" {
		grpclog.SetLoggerV2(&xdsLog)
	}
}

// passTo passes what xDS clients say on to a log until stop is called. Many clients may say the same.
func (l *clientLog) passTo(log *slog.Logger) (stop func()) {
	l.to.Store(log)
	return func() {
		l.to.CompareAndSwap(log, nil)
		repeatlog.Flush(log)
	}
}

// Infoln, Warningln and Errorln are what grpclog calls for a component, whose name comes first.
func (l *clientLog) Infoln(args ...any)    { l.pass(slog.LevelInfo, args) }
func (l *clientLog) Warningln(args ...any) { l.pass(slog.LevelWarn, args) }
func (l *clientLog) Errorln(args ...any)   { l.pass(slog.LevelError, args) }

func (l *clientLog) pass(level slog.Level, args []any) {
	to := l.to.Load()
	if to == nil || len(args) < 2 || !strings.HasPrefix(fmt.Sprint(args[0]), "[dynxds") {
		return
	}
	text := strings.TrimSuffix(fmt.Sprintln(args[1:]...), "\n")
	to.LogAttrs(context.Background(), level, "the xDS client says", slog.String("text", text), repeatlog.By("", text))
}
