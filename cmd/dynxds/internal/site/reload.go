package site

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/publish"
	"github.com/dynxds/dynxds/internal/strictyaml"
	"github.com/dynxds/dynxds/meshroute"
)

// reloader brings the store up to date with the folder. It is for one goroutine.
type reloader struct {
	folder    *folder.Reader
	publisher *publish.Publisher
	log       *slog.Logger
	// content and err are the last result of reading, and reports were logged.
	content *folder.Content
	err     error
	reports map[meshroute.Report]bool
}

// load reads the folder and, if it changed and is right, publishes it. It logs what
// happened, unless that is nothing or the same as the last time. The error is that
// of the folder as it is.
func (r *reloader) load() error {
	began := time.Now()
	content, err := r.folder.Read()
	if content == r.content && err == r.err {
		return r.err
	}
	if err != nil {
		r.content, r.err = nil, err
		r.refuse(err)
		return err
	}
	summary, err := r.publisher.Publish(content)
	if err != nil {
		// The content stays refused until the folder changes.
		r.content, r.err = content, err
		r.refuse(err)
		return err
	}
	if r.err != nil {
		r.log.Info("the folder is right again")
	}
	r.content, r.err = content, nil
	r.log.Info("published", "version", summary.Version, "changed", summary.Changed, "removed", summary.Removed,
		"files", content.Files, "services", len(content.Services), "policies", len(content.Policies),
		"took", time.Since(began).Round(time.Microsecond))
	r.tell(summary.Reports)
	return nil
}

// refuse logs why the folder is not published, each fault by itself.
func (r *reloader) refuse(err error) {
	const refused = "the folder is faulty; clients keep the last good state"
	var faults *strictyaml.Faults
	if !errors.As(err, &faults) {
		r.log.Error(refused, "error", err)
		return
	}
	for _, fault := range faults.List {
		r.log.Error(refused, "fault", fault.String())
	}
}

// levels are those that reports are logged at.
var levels = map[meshroute.Severity]slog.Level{
	meshroute.Note: slog.LevelInfo, meshroute.Warning: slog.LevelWarn, meshroute.Error: slog.LevelError,
}

// tell logs the reports that were not there before.
func (r *reloader) tell(reports []meshroute.Report) {
	now := make(map[meshroute.Report]bool, len(reports))
	for _, report := range reports {
		if !r.reports[report] && !now[report] {
			r.log.Log(context.Background(), levels[report.Severity], "report", "about", report.String())
		}
		now[report] = true
	}
	r.reports = now
}

// run loads again whenever poll has passed or hurry says so, until the context ends.
func (r *reloader) run(ctx context.Context, poll time.Duration, hurry <-chan struct{}) {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-hurry:
		}
		// What is wrong was logged.
		_ = r.load()
	}
}
