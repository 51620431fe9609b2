package site

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/metrics"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/publish"
	"github.com/dynxds/dynxds/internal/document"
	"github.com/dynxds/dynxds/meshroute"
)

// documents are where a control plane gets its content from: a folder (files), or a store (feed.Feed). They
// are for one goroutine.
type documents interface {
	// Read returns the present content; if nothing changed, the same pointers. The context bounds
	// requests to a store.
	Read(context.Context) (*folder.Content, error)
	// Without leaves out of the content what an error of it is about, if something else can stand
	// in its place; false: the error is that of the whole.
	Without(context.Context, error) bool
	// Published says that the content that was read last is in use.
	Published()
	// Wait waits until it is time to read again; false: the context has ended.
	Wait(context.Context) bool
	Close()
	// Held counts documents that do not count with their newest version, as that is faulty, and
	// GoneSince is when they could be read no more, zero if they can. Both are safe for concurrent
	// use.
	Held() int
	GoneSince() time.Time
}

// reloader updates the store from the documents. It is for one goroutine.
type reloader struct {
	documents documents
	// place is what the documents are in, dir its name.
	place, dir string
	publisher  *publish.Publisher
	decoder    decoder
	metrics    *metrics.Plane
	log        *slog.Logger
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
	content, err := r.documents.Read(ctx)
	if content == r.content && err == r.readErr {
		return r.err
	}
	r.metrics.Seen()
	wasFaulty := r.err != nil
	summary, err := r.publish(ctx, content, err)
	for err != nil && r.documents.Without(ctx, err) {
		content, err = r.documents.Read(ctx)
		summary, err = r.publish(ctx, content, err)
	}
	if r.err = err; err != nil {
		r.metrics.Refused(faultsIn(err))
		if r.published != nil {
			r.refuse(r.err)
		}
		return r.err
	}
	r.published = r.content
	r.documents.Published()
	r.metrics.Published(time.Since(began), r.content.Documents())
	if wasFaulty {
		r.log.Info("the " + r.place + " is right again")
	}
	r.logPublished(r.content, &summary, time.Since(began))
	return nil
}

// publish publishes what was read, or returns the error of reading.
func (r *reloader) publish(ctx context.Context, content *folder.Content, err error) (publish.Summary, error) {
	r.content, r.readErr = content, err
	switch {
	case err != nil:
		return publish.Summary{}, err
	case content.Documents() == 0 && r.published.Documents() > 0:
		return publish.Summary{}, r.emptied()
	}
	return r.publisher.Publish(ctx, content)
}

// emptied is the error of a folder or store that lost all its documents: it is more likely that a mount
// failed or a deployment is incomplete than that nothing should be served.
func (r *reloader) emptied() error {
	return fmt.Errorf("the %s %s has no documents any more, and had %d: put them back, or restart the server to serve nothing",
		r.place, r.dir, r.published.Documents())
}

// nothingToRead is the warning about a folder that may be the wrong one.
const nothingToRead = "the folder has no .yaml, .yml or .json file"

// logPublished logs what was published.
func (r *reloader) logPublished(content *folder.Content, summary *publish.Summary, took time.Duration) {
	r.log.Info("published", "version", summary.Version, "changed", summary.Changed, "removed", summary.Removed,
		"files", content.Files, "services", len(content.Services), "policies", len(content.Policies),
		"took", took.Round(time.Microsecond))
	if content.Files == 0 {
		r.log.Warn(strings.Replace(nothingToRead, "folder", r.place, 1))
	}
	if summary.Late > 0 {
		r.log.Warn("clients did not take new constraints in time; they may see other clients' routes until they do",
			"clients", summary.Late)
	}
	r.logReports(slices.Concat(summary.Reports, r.decoder.written(content, r.publisher.Mesh())))
}

// refuse logs each fault of a folder that is not published.
func (r *reloader) refuse(err error) {
	refused := "the " + r.place + " is faulty; clients keep the last good state"
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

// run loads the documents whenever they may have changed, until the context ends.
func (r *reloader) run(ctx context.Context) {
	for r.documents.Wait(ctx) {
		_ = r.load(ctx) // which logs errors
	}
}
