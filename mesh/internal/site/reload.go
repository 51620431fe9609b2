package site

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/internal/metrics"
	"github.com/dynxds/dynxds/mesh/internal/planestate"
	"github.com/dynxds/dynxds/mesh/internal/publish"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// reloader updates the store from the documents. It is for one goroutine.
type reloader struct {
	opts      *Options
	publisher *publish.Publisher
	// rejected is what clients reject of what was published all the same, as Options.Permissive says.
	rejected error
	metrics  *metrics.Plane
	state    *planestate.Keeper
	absence  *absence
	log      *slog.Logger
	// published is the last published content, or nil.
	published *folder.Content
	// content and readErr are the last result of reading.
	content *folder.Content
	readErr error
	// err is the error of reading or publishing it.
	err error
	// withheld is what is not published yet of the content, or nil.
	withheld *withheld
	// faults are those of the last content, and reports those of the last published one, which were logged.
	faults  map[string]bool
	reports map[meshroute.Report]bool
	// onFirst is called after the first publication if that is after the start; otherwise it is nil, and so it is afterwards.
	onFirst func()
}

// load reads the documents and, if they changed and are valid, publishes them. It logs the outcome unless that is the same as
// last time. The error is why nothing is published at all. The context bounds the wait for clients.
func (r *reloader) load(ctx context.Context) error {
	began := time.Now()
	content, err := r.opts.Documents.Read(ctx)
	if content != r.content || err != r.readErr || r.withheld != nil && !began.Before(r.withheld.due) {
		r.take(ctx, content, err, began)
	}
	if r.published == nil {
		return r.err
	}
	return nil
}

// take publishes what was read, or notes why not.
func (r *reloader) take(ctx context.Context, content *folder.Content, err error, began time.Time) {
	r.metrics.Seen()
	wasFaulty := r.err != nil
	r.content, r.readErr = content, err
	if err == nil {
		err = r.check(content)
	}
	var summary publish.Summary
	if err != nil {
		r.withheld = nil
	} else {
		content = r.decide(content, began)
		summary, err = r.publisher.Publish(ctx, content)
	}
	isNew := err == nil && (r.withheld == nil || summary.Changed+summary.Removed > 0)
	if err != nil && r.withheld != nil && !wasFaulty {
		err = nil // what stays may conflict with what is new, which waits then
	}
	r.err = err
	if err != nil {
		r.note(err)
		if r.published != nil || r.onFirst != nil {
			r.refuse(err)
		}
		return
	}
	r.faults = nil
	if wasFaulty {
		r.log.Info("the " + r.opts.Place + " is valid again")
	}
	if isNew {
		r.metrics.Published(time.Since(began))
		r.publishes(content, &summary, began)
	}
	r.note(r.rejected)
	if r.onFirst != nil {
		r.onFirst()
		r.onFirst = nil
	}
}

// publishes notes and logs what was published.
func (r *reloader) publishes(content *folder.Content, summary *publish.Summary, began time.Time) {
	r.published, r.rejected = content, publish.ErrorsIn(summary.Rejected)
	r.absence.published.Store(&dialable{content, r.publisher.Mesh()})
	reports := slices.Clone(summary.Reports)
	if content.Files == 0 && !content.Separate {
		reports = append(reports, meshroute.Report{Severity: meshroute.Warning, Message: strings.Replace(nothingToRead, "folder", r.opts.Place, 1)})
	}
	r.state.Set(func(s *planestate.State) { s.Published = publishedOf(content, summary, reports) })
	r.logPublished(content, summary, time.Since(began))
	r.logReports(slices.Concat(reports, summary.Rejected))
	if r.opts.OnLeftOut != nil {
		r.opts.OnLeftOut(slices.DeleteFunc(slices.Clone(summary.Reports), func(report meshroute.Report) bool { return !report.LeftOut }))
	}
}

// check returns why a valid content is not to be published: that of a folder that lost all its documents. It is more likely that a
// mount failed or a deployment is incomplete than that nothing should be served. Objects of an API server are not half written, and
// not yet to be mounted: there may be none.
func (r *reloader) check(content *folder.Content) error {
	if content.Documents() == 0 && r.published.Documents() > 0 && !content.Separate {
		return fmt.Errorf("the %s %s has lost all its documents: restore them; to serve nothing, restart the server", r.opts.Place, r.opts.Dir)
	}
	return nil
}

// nothingToRead is the warning about a folder that may be the wrong one.
const nothingToRead = "the folder has no .yaml, .yml or .json file"

// logPublished logs what was published. Objects of an API server, with authors of their own, change all the time: only their first
// publication is logged.
func (r *reloader) logPublished(content *folder.Content, summary *publish.Summary, took time.Duration) {
	level := slog.LevelInfo
	if content.Separate && r.reports != nil {
		level = slog.LevelDebug
	}
	r.log.Log(context.Background(), level, "published", "version", summary.Version, "changed", summary.Changed, "removed", summary.Removed,
		"files", content.Files, "services", len(content.Services), "policies", len(content.Policies),
		"took", took.Round(time.Microsecond))
	if summary.Late > 0 {
		r.log.Warn("clients did not apply new constraints in time; until they do, they may get the routes of other clients",
			"clients", summary.Late)
	}
}

// refuse logs each new error of documents that are not published.
func (r *reloader) refuse(err error) {
	refused := "the " + r.opts.Place + " has errors; clients keep the last good state"
	if r.published == nil {
		refused = "the " + r.opts.Place + " has errors; not ready until it is valid"
	}
	now := make(map[string]bool)
	log := func(key string, args ...any) {
		if now[key] = true; !r.faults[key] {
			r.log.Error(refused, args...)
		}
	}
	var faults *document.Faults
	if errors.As(err, &faults) {
		for _, fault := range faults.List {
			log(fault.String(), "error", fault.String())
		}
		if faults.Omitted > 0 {
			log("omitted", "omitted", faults.Omitted)
		}
	} else {
		log(err.Error(), "error", err)
	}
	r.faults = now
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

// run loads the documents whenever they may have changed, or on a signal, until the context ends.
func (r *reloader) run(ctx context.Context) {
	for {
		next := r.opts.Documents.Again()
		if w := r.withheld; w != nil && (next.IsZero() || w.due.Before(next)) {
			next = w.due
		}
		var due <-chan time.Time
		if !next.IsZero() {
			due = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return
		case <-r.opts.Documents.Changed():
		case <-r.opts.Reload:
		case <-due:
		}
		_ = r.load(ctx) // which logs errors
	}
}
