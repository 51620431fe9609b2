package main

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/kubetest"
)

// apiProxy stands before the API server. It fails requests for one resource as it is told.
type apiProxy struct {
	t       testing.TB
	cluster *kubetest.Cluster
	url     string

	mu sync.Mutex
	// answer answers requests for the resource in place of the API server; nil is nobody.
	resource string
	answer   func(w http.ResponseWriter, r *http.Request) (answered bool)
	// watches cancels the watches of the resource that are under way.
	watches map[*http.Request]context.CancelFunc
}

func newAPIProxy(t testing.TB, cluster *kubetest.Cluster, resource string) *apiProxy {
	t.Helper()
	p := &apiProxy{t: t, cluster: cluster, resource: resource, watches: map[*http.Request]context.CancelFunc{}}
	target, err := url.Parse(cluster.URL())
	xdstest.NoError(t, err)
	reverse := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		FlushInterval: -1,
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(reverse, w, r) }))
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

// use makes a server use the proxy.
func (p *apiProxy) use(f *flags) {
	xdstest.NoError(p.t, p.cluster.KubeconfigOf(f.kubeconfig, p.cluster.AdminToken(), p.url))
}

func (p *apiProxy) serve(to http.Handler, w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "/"+p.resource) {
		to.ServeHTTP(w, r)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	p.mu.Lock()
	answer := p.answer
	p.watches[r] = cancel
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watches, r)
	}()
	if answer != nil && answer(w, r) {
		return
	}
	defer func() { _ = recover() }() // the proxy's way of ending a response that was cut
	to.ServeHTTP(w, r.WithContext(ctx))
}

// set makes a function answer requests for the resource, and ends those that are under way.
func (p *apiProxy) set(answer func(w http.ResponseWriter, r *http.Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
	for _, cancel := range p.watches {
		cancel()
	}
}

const expired = `{"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Expired", "message": "too old resource version: 1 (2)", "code": 410}`

// gone are the ways in which an API server says that it does not know the revision any more from which a watch is to go on.
var gone = map[string]func(w http.ResponseWriter){
	"by the status": func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusGone)
		_, _ = io.WriteString(w, expired)
	},
	"by an event": func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"type": "ERROR", "object": `+expired+"}\n")
	},
}

// resumes reports whether a request is for a watch that goes on from what its client knows.
func resumes(r *http.Request) bool {
	q := r.URL.Query()
	return q.Get("watch") != "" && q.Get("sendInitialEvents") == ""
}
