package site

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/metrics"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/publish"
	"github.com/dynxds/dynxds/internal/document"
	"github.com/dynxds/dynxds/meshroute"
)

// reloader updates the store from the folder. It is for one goroutine.
type reloader struct {
	folder    *folder.Reader
	publisher *publish.Publisher
	decoder   decoder
	metrics   *metrics.Plane
	log       *slog.Logger
	// published is the last published content, or nil.
	published *folder.Content
	// content and readErr are the last result of reading.
	content *folder.Content
	readErr error
	// err is the error of reading or publishing it.
	err error
	// reports are those of the last content, which were logged.
	reports map[meshroute.Report]bool
}

// load reads the folder and, if it changed and is valid, publishes it. It logs the outcome unless that is
// the same as last time. The error is that of the present folder; until something was published, the
// caller reports it. The context bounds the wait for clients.
func (r *reloader) load(ctx context.Context) error {
	began := time.Now()
	content, err := r.folder.Read()
	if err == nil {
		r.metrics.Contact()
	}
	if content == r.content && err == r.readErr {
		return r.err
	}
	r.metrics.Seen()
	wasFaulty := r.err != nil
	r.content, r.readErr, r.err = content, err, err
	var summary publish.Summary
	if err == nil && content.Documents() == 0 && r.published.Documents() > 0 {
		r.err = r.emptied()
	} else if err == nil {
		summary, r.err = r.publisher.Publish(ctx, content)
	}
	if r.err != nil {
		r.metrics.Refused(faultsIn(r.err))
		if r.published != nil {
			r.refuse(r.err)
		}
		return r.err
	}
	r.published = content
	r.metrics.Published(time.Since(began), content.Documents(), 0)
	if wasFaulty {
		r.log.Info("the folder is right again")
	}
	r.logPublished(content, &summary, time.Since(began))
	return nil
}

// emptied is the error of a folder that lost all its documents: it is more likely that a mount failed or
// a deployment is incomplete than that nothing should be served.
func (r *reloader) emptied() error {
	return fmt.Errorf("the folder %s has no documents any more, and had %d: put them back, or restart the server to serve nothing",
		r.folder.Dir(), r.published.Documents())
}

// nothingToRead is the warning about a folder that may be the wrong one.
const nothingToRead = "the folder has no .yaml, .yml or .json file"

// logPublished logs what was published.
func (r *reloader) logPublished(content *folder.Content, summary *publish.Summary, took time.Duration) {
	r.log.Info("published", "version", summary.Version, "changed", summary.Changed, "removed", summary.Removed,
		"files", content.Files, "services", len(content.Services), "policies", len(content.Policies),
		"took", took.Round(time.Microsecond))
	if content.Files == 0 {
		r.log.Warn(nothingToRead)
	}
	if summary.Late > 0 {
		r.log.Warn("clients did not take new constraints in time; they may see other clients' routes until they do",
			"clients", summary.Late)
	}
	r.logReports(slices.Concat(summary.Reports, r.decoder.written(content, r.publisher.Mesh())))
}

// refuse logs each fault of a folder that is not published.
func (r *reloader) refuse(err error) {
	const refused = "the folder is faulty; clients keep the last good state"
	var faults *document.Faults
	if !errors.As(err, &faults) {
		r.log.Error(refused, "error", err)
		return
	}
	for _, fault := range faults.List {
		r.log.Error(refused, "error", fault.String())
	}
	if faults.Omitted > 0 {
		r.log.Error(refused, "omitted", faults.Omitted)
	}
}

// faultsIn counts the faults in an error, 1 for any other error.
func faultsIn(err error) int {
	var faults *document.Faults
	if errors.As(err, &faults) {
		return faults.Total()
	}
	return 1
}

// levels are the log levels of reports.
var levels = map[meshroute.Severity]slog.Level{
	meshroute.Note: slog.LevelInfo, meshroute.Warning: slog.LevelWarn, meshroute.Error: slog.LevelError,
}

// logReports logs new reports.
func (r *reloader) logReports(reports []meshroute.Report) {
	now := make(map[meshroute.Report]bool, len(reports))
	for _, report := range reports {
		if !r.reports[report] && !now[report] {
			r.log.Log(context.Background(), levels[report.Severity], "report", "about", report.String())
		}
		now[report] = true
	}
	r.reports = now
}

// run loads the folder at every poll and at every signal of hurry, until the context ends.
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
		_ = r.load(ctx) // which logs errors
	}
}
