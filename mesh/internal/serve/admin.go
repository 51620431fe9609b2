package serve

import (
	"crypto/rand"
	"net"
	"net/http"
	"os"
	"strings"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/dynxds/dynxds/mesh/internal/clients"
	"github.com/dynxds/dynxds/mesh/internal/webguard"
	"github.com/dynxds/dynxds/mesh/internal/webpage"
)

// The addresses that the flag --admin means without one. Both commands may run on one machine. dynxds clients asks
// that of dynxds serve.
const (
	DefaultAdmin      = "127.0.0.1:18002"
	DefaultRelayAdmin = "127.0.0.1:18003"
)

// openPages serves the pages for operators and for Prometheus, where the options want any.
func (s *Server) openPages() error {
	for _, of := range []struct {
		flag, address string
		isAdmin       bool
	}{{"--admin", s.opts.Admin, true}, {"--metrics", s.opts.MetricsAddress, false}} {
		if of.address == "" {
			continue
		}
		page, err := webpage.Open(of.flag, of.address, func(hosts []string, open bool) http.Handler {
			if open && !of.isAdmin {
				hosts = append(hosts, "*") // Prometheus may know the server by any name
			}
			return s.pages(of.isAdmin, hosts)
		})
		if err != nil {
			s.closePages()
			return err
		}
		s.open = append(s.open, page)
		if of.isAdmin {
			s.admin = page
		}
		log := s.opts.Log.Info
		if page.Open {
			log = s.opts.Log.Warn
		}
		log("pages without a login", "flag", of.flag, "url", page.URL, "open", page.Open)
	}
	return nil
}

// pages returns the pages at one address, for requests to one of the hosts (package webguard).
func (s *Server) pages(isAdmin bool, hosts []string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { s.healthz(w, r, isAdmin) })
	if s.opts.Metrics != nil {
		mux.Handle("GET /metrics", s.opts.Metrics.Handler())
	}
	if isAdmin {
		mux.Handle("GET /clients", clients.Handler(clients.Source{
			ID: s.id, Streams: s.ads.Overview, Configuration: s.opts.Configuration, Upstream: s.opts.Upstream, Loads: s.opts.Loads,
		}))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		if fault := webguard.Fault(r, hosts, "name it in the flag"); fault != "" {
			http.Error(w, fault, http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// healthz answers as the health service does for the server as a whole: a replica with faulty documents serves what was
// good last, and so is healthy. The lines below say what is wrong, on the admin pages with file and line.
func (s *Server) healthz(w http.ResponseWriter, r *http.Request, isAdmin bool) {
	answer, err := s.health.Check(r.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || answer.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	lines := []string{answer.GetStatus().String()}
	if s.opts.Configuration != nil {
		state := s.opts.Configuration()
		lines = append(lines, state.Text(isAdmin)...)
	}
	if s.opts.Upstream != nil {
		if line := s.opts.Upstream(); line != "" {
			lines = append(lines, line)
		}
	}
	_, _ = w.Write([]byte(strings.Join(lines, "\n") + "\n"))
}

// newID returns the ID of a replica: the machine's name, and something that no other process has.
func newID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unnamed"
	}
	return host + "-" + strings.ToLower(rand.Text()[:8])
}

// ID returns the ID of the replica, which another process at its addresses does not have.
func (s *Server) ID() string { return s.id }

// AdminAddr returns the address of the admin pages for other machines, "host:port", or "" if there are
// none. It has the machine's name if the pages are on all its addresses.
func (s *Server) AdminAddr() string {
	if s.admin == nil {
		return ""
	}
	host, port, err := net.SplitHostPort(s.admin.Addr)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		if name, err := os.Hostname(); err == nil {
			return net.JoinHostPort(name, port)
		}
	}
	return s.admin.Addr
}

func (s *Server) closePages() {
	for _, page := range s.open {
		page.Close()
	}
	s.open = nil
}
