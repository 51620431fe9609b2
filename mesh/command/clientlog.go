package command

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc/grpclog"

	"github.com/dynxds/dynxds/mesh/internal/repeatlog"
)

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
