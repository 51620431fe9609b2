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
	"github.com/dynxds/dynxds/mesh/internal/planestate"
	"github.com/dynxds/dynxds/mesh/internal/publish"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// load reads the documents and, if they changed and are valid, publishes them. It logs the outcome unless that is the same as
// last time. The error is why nothing is published at all. The context bounds the wait for clients.
func (p *plane) load(ctx context.Context) error {
	began := time.Now()
	content, err := p.opts.Documents.Read(ctx)
	if content != p.content || err != p.readErr || p.withheld != nil && !began.Before(p.withheld.due) {
		p.take(ctx, content, err, began)
	}
	if p.published == nil {
		return p.err
	}
	return nil
}

// take publishes what was read, or notes why not.
func (p *plane) take(ctx context.Context, content *folder.Content, err error, began time.Time) {
	p.metrics.Seen()
	before := p.err
	p.content, p.readErr = content, err
	if err == nil && content.Documents() == 0 && p.published.Documents() > 0 && !content.Separate {
		// It is more likely that a mount failed or a deployment is incomplete than that nothing should be served. Objects of an API server
		// are not half written, and not yet to be mounted: there may be none.
		err = fmt.Errorf("the %s %s has lost all its documents: restore them; to serve nothing, restart the server", p.opts.Place, p.opts.Dir)
	}
	var summary publish.Summary
	if err != nil {
		p.withheld = nil
	} else {
		content = p.decide(content, began)
		summary, err = p.publisher.Publish(ctx, content)
	}
	switch {
	case err != nil && p.withheld != nil && before == nil:
		err = nil // what stays may conflict with what is new, which waits then
	case err == nil && before != nil:
		p.log.Info("the " + p.opts.Place + " is valid again")
		fallthrough
	case err == nil:
		if p.withheld == nil || summary.Changed+summary.Removed > 0 {
			p.publishes(content, &summary, began)
		}
	}
	if p.err = err; err != nil {
		p.note(err)
		if p.published != nil || p.onFirst != nil {
			p.refuse(err)
		}
		return
	}
	p.faults = nil
	p.note(p.rejected)
	if p.onFirst != nil {
		p.onFirst()
		p.onFirst = nil
	}
}

// nothingToRead is the warning about a folder that may be the wrong one.
const nothingToRead = "the folder has no documents in .yaml, .yml or .json files"

// publishes notes and logs what was published. Objects of an API server, with authors of their own, change all the time: only their first
// publication is logged.
func (p *plane) publishes(content *folder.Content, summary *publish.Summary, began time.Time) {
	p.metrics.Published(time.Since(began))
	level := slog.LevelInfo
	if content.Separate && p.published != nil {
		level = slog.LevelDebug
	}
	p.published, p.rejected = content, publish.ErrorsIn(summary.Rejected)
	p.absence.published.Store(&dialable{content, p.publisher.Mesh()})
	reports := slices.Clone(summary.Reports)
	if content.Documents() == 0 && !content.Separate {
		reports = append(reports, meshroute.Report{Severity: meshroute.Warning, Message: strings.Replace(nothingToRead, "folder", p.opts.Place, 1)})
	}
	p.state.Set(func(s *planestate.State) { s.Published = publishedOf(content, summary, reports) })
	p.log.Log(context.Background(), level, "published", "version", summary.Version, "changed", summary.Changed, "removed", summary.Removed,
		"files", content.Files, "services", len(content.Services), "policies", len(content.Policies),
		"took", time.Since(began).Round(time.Microsecond))
	if summary.Late > 0 {
		p.log.Warn("clients did not apply new constraints in time; until they do, they may get the routes of other clients",
			"clients", summary.Late)
	}
	var lines []line
	for _, r := range slices.Concat(reports, summary.Rejected) {
		lines = append(lines, line{levels[r.Severity], "report", "about", r.String()})
	}
	p.reports = p.say(p.reports, lines)
	if p.opts.OnLeftOut != nil {
		p.opts.OnLeftOut(slices.DeleteFunc(slices.Clone(summary.Reports), func(report meshroute.Report) bool { return !report.LeftOut }))
	}
}

// refuse logs each new error of documents that are not published.
func (p *plane) refuse(err error) {
	message := "the " + p.opts.Place + " has errors; clients keep the last good state"
	if p.published == nil {
		message = "the " + p.opts.Place + " has errors; not ready until it is valid"
	}
	var lines []line
	if several, ok := errors.AsType[*document.Faults](err); ok {
		for _, one := range several.List {
			lines = append(lines, line{slog.LevelError, message, "error", one.String()})
		}
		if several.Omitted > 0 {
			lines = append(lines, line{slog.LevelError, message, "omitted", several.Omitted})
		}
	} else {
		lines = append(lines, line{slog.LevelError, message, "error", err.Error()})
	}
	p.faults = p.say(p.faults, lines)
}

// levels are the log levels of reports.
var levels = map[meshroute.Severity]slog.Level{
	meshroute.Note: slog.LevelInfo, meshroute.Warning: slog.LevelWarn, meshroute.Error: slog.LevelError,
}

// line is a line of the log.
type line struct {
	level        slog.Level
	message, key string
	value        any
}

// say logs the lines that were not logged before, each once, and returns all of them.
func (p *plane) say(before map[line]bool, lines []line) map[line]bool {
	now := make(map[line]bool, len(lines))
	for _, l := range lines {
		if !before[l] && !now[l] {
			p.log.Log(context.Background(), l.level, l.message, l.key, l.value)
		}
		now[l] = true
	}
	return now
}

// run loads the documents whenever they may have changed, or on a signal, until the context ends.
func (p *plane) run(ctx context.Context) {
	for {
		next := p.opts.Documents.Again()
		if w := p.withheld; w != nil && (next.IsZero() || w.due.Before(next)) {
			next = w.due
		}
		var due <-chan time.Time
		if !next.IsZero() {
			due = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return
		case <-p.opts.Documents.Changed():
		case <-p.opts.Reload:
		case <-due:
		}
		_ = p.load(ctx) // which logs errors
	}
}
