package statuspage

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// view is what one browser is shown at one moment.
type view struct {
	ctx     context.Context
	handler *handler
	snap    *snapshot
	query   *query
}

// sections are the parts of the page that a browser asks for, by the names that it knows. Each
// returns a value for JSON, of bounded size.
var sections map[string]func(*view, wanted) any

func init() {
	// Not in the declaration: a section may lead back to the names of all.
	sections = map[string]func(*view, wanted) any{
		"overview":  (*view).overview,
		"channels":  (*view).channels,
		"clients":   (*view).clients,
		"graph":     (*view).graph,
		"resources": (*view).resources,
		"clusters":  (*view).clusters,
		"changes":   (*view).changes,
		"peers":     (*view).peers,
		"served":    (*view).served,
	}
}

// data answers with the sections that are asked for, as one object.
func (h *handler) data(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r.URL.Query())
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	v := &view{ctx: r.Context(), handler: h, snap: h.snapshots.get(h), query: q}
	answer := map[string]any{"now": time.Now()}
	for _, name := range q.sections {
		answer[name] = v.section(name)
	}
	h.writeJSON(w, answer)
}

// section returns the content of a section.
func (v *view) section(name string) any { return clipped(sections[name](v, v.query.of(name))) }

// writeJSON writes an answer, for at most as long as a browser may take to read.
func (h *handler) writeJSON(w http.ResponseWriter, value any) {
	content, err := json.Marshal(value)
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(h.patience))
	_, _ = w.Write(content)
}
