package statuspage_test

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"

	"github.com/dynxds/dynxds/mesh/statuspage"
)

// The page on loopback, beside other pages for debugging. Pages of the same program are
// mounted at other patterns.
func ExampleHandler() {
	mux := http.NewServeMux()
	mux.Handle("/debug/xds/", statuspage.Handler())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: mux}
	go server.Serve(listener)
	defer server.Close()

	// What a browser shows, a script can read.
	resp, err := http.Get("http://" + listener.Addr().String() + "/debug/xds/data?show=channels")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(resp.Header.Get("Content-Type"), len(body) > 0)
	http.DefaultClient.CloseIdleConnections()
	// Output:
	// application/json true
}

// A page with a name, behind the program's own authentication.
func ExampleAllowHosts() {
	page := statuspage.Handler(statuspage.AllowHosts("status.example.com"))
	http.Handle("/xds/", authenticated(http.StripPrefix("/xds", page)))
}

func authenticated(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password == "" { // check it here
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}
