// Package statuspage shows, in a browser, what the xDS channels of the process do and why:
// their resources with versions and errors, the graph from Listeners to endpoints, the
// fields that are ignored, the last changes, RPC rates, and a form that explains an RPC.
//
//	mux.Handle("/debug/xds/", statuspage.Handler())
//	err := http.ListenAndServe("localhost:8080", mux)
//
// [Handler] may be mounted anywhere, with or without http.StripPrefix, as long as the pattern
// ends in "/". The page is one HTML, one CSS and one JavaScript file, which are in the
// program. It follows changes: once a second the browser asks for what is unfolded,
// searched for and paged to, and the handler sends what of that has changed.
// Nothing is collected while no browser shows the page.
//
// # Security
//
// The page shows names, addresses and errors of the mesh, but not the contents of resources.
// It has no login, and the handler does not know who asks: mount it on a server that
// only administrators can reach, such as one on loopback, or behind the program's own
// authentication. It answers GET and HEAD alone and changes nothing.
//
// Everything from a resource or a peer is shown as text; the content security policy allows
// no inline script or style and no other origin. Requests that other sites make a browser
// send are refused: those with such a Sec-Fetch-Site, and those whose Host is a DNS name that
// was not allowed, as another site could have pointed its name at this server (DNS
// rebinding). IP addresses and "localhost" are always allowed, and [AllowHosts] adds names.
package statuspage
