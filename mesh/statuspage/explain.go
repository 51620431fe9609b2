package statuspage

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dynxds/dynxds/mesh/explain"
)

// Bounds on an explanation. One of a large mesh lists each route and endpoint.
const (
	maxHeaders      = 100
	hostsExplained  = 20
	routesExplained = 50
	// endpointsExplained bounds those of one cluster.
	endpointsExplained = 50
	explainTime        = 5 * time.Second
)

// explanation is a part of an explanation, as much as is shown.
type explanation struct {
	*explain.Explanation `json:"explanation"`
	// HostsLeft and RoutesLeft are the numbers of virtual hosts and routes that are not shown;
	// EndpointsLeft those of endpoints, by cluster.
	HostsLeft     int            `json:"hosts_left,omitempty"`
	RoutesLeft    int            `json:"routes_left,omitempty"`
	EndpointsLeft map[string]int `json:"endpoints_left,omitempty"`
}

// explain answers what becomes of an RPC: of the parameters target and method, channel if several have
// the target, and of any number named header, "name: value".
func (h *handler) explain(w http.ResponseWriter, r *http.Request) {
	request, err := parseRequest(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), explainTime)
	defer cancel()
	select {
	case h.asking <- struct{}{}:
	case <-ctx.Done():
		refuse(w, http.StatusServiceUnavailable, "other RPCs are being explained; try again")
		return
	}
	e, err := func() (*explain.Explanation, error) {
		defer func() { <-h.asking }() // others do not wait for this browser to read
		return explain.InProcess(ctx, request)
	}()
	if err != nil {
		refuse(w, http.StatusBadRequest, clip(err.Error(), maxError))
		return
	}
	h.writeJSON(w, shorten(e))
}

func parseRequest(r *http.Request) (explain.Request, error) {
	q := r.URL.Query()
	request := explain.Request{Target: q.Get("target"), Method: q.Get("method"), Authority: q.Get("authority"), Headers: map[string][]string{}}
	if text := q.Get("channel"); text != "" {
		var err error
		if request.Channel, err = strconv.ParseUint(text, 10, 64); err != nil {
			return request, fmt.Errorf("channel: %.60q is not a number", text)
		}
	}
	if n := len(q["header"]); n > maxHeaders {
		return request, fmt.Errorf("header: %d, more than %d", n, maxHeaders)
	}
	for _, line := range q["header"] {
		key, value, ok := strings.Cut(line, ":")
		if key = strings.ToLower(strings.TrimSpace(key)); !ok || key == "" {
			return request, fmt.Errorf("header %.60q: want NAME: VALUE", line)
		}
		request.Headers[key] = append(request.Headers[key], strings.TrimSpace(value))
	}
	return request, nil
}

// shorten leaves out what a page cannot show. What was chosen stays: it is what matters.
func shorten(e *explain.Explanation) *explanation {
	short := &explanation{Explanation: e, EndpointsLeft: make(map[string]int)}
	e.VirtualHosts, short.HostsLeft = few(e.VirtualHosts, hostsExplained, func(h *explain.VirtualHost) bool { return h.Chosen })
	e.Routes, short.RoutesLeft = few(e.Routes, routesExplained, func(r *explain.Route) bool { return r.Share > 0 })
	for i := range e.Clusters {
		c := &e.Clusters[i]
		if c.Assignment == nil {
			continue
		}
		room := endpointsExplained
		for j := range c.Assignment.Priorities {
			localities := c.Assignment.Priorities[j].Localities
			for k := range localities {
				l := &localities[k]
				n := min(room, len(l.Endpoints))
				if left := len(l.Endpoints) - n; left > 0 {
					short.EndpointsLeft[c.Name] += left
				}
				l.Endpoints = l.Endpoints[:n]
				room -= n
			}
		}
	}
	return short
}

// few returns at most a number of elements: the first ones, and those that are kept.
func few[T any](all []T, limit int, keep func(*T) bool) (list []T, left int) {
	if len(all) <= limit {
		return all, 0
	}
	for i := range all {
		if len(list) < limit/2 || len(list) < limit && keep(&all[i]) {
			list = append(list, all[i])
		}
	}
	return list, len(all) - len(list)
}
