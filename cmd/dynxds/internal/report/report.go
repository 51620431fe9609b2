package report

import (
	"io"
	"os"
	"time"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/scenario"
)

// Reporter prints what it is told, one call at a time: SetUp first, then what a
// scenario observes.
type Reporter interface {
	scenario.Observer
	// SetUp: everything runs, and no RPC was made yet.
	SetUp(SetUp)
	// Interval is the time between two calls of Progressed that the form of
	// output wants.
	Interval() time.Duration
}

// SetUp says what runs.
type SetUp struct {
	// Target is what the client dials, Bootstrap the path of its file.
	Target, Bootstrap string
	// ControlPlane is an address.
	ControlPlane string
	Backends     []Backend
	// Methods are the short names of those the client calls.
	Methods []string
	// Duration is how long the demo is to run.
	Duration time.Duration
}

// Backend is one backend.
type Backend struct{ Name, Cluster, Address string }

// New returns the Reporter for people that fits out: a live table if out is a
// terminal that can move its cursor, lines if not. The environment is asked for
// TERM and NO_COLOR.
func New(out io.Writer) Reporter {
	if !isTerminal(out) || os.Getenv("TERM") == "dumb" {
		return NewLines(out)
	}
	return NewLive(out, os.Getenv("NO_COLOR") == "")
}

// isTerminal says whether out is a character device. So is /dev/null, which
// does not mind.
func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
