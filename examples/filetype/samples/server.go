// Counts visits and says so.
package main

import (
	"fmt"
	"log"
	"net/http"
	"sync/atomic"
)

type counter struct {
	visits atomic.Int64
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := c.visits.Add(1)
	if r.Method != http.MethodGet {
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	}
	fmt.Fprintf(w, "visit %d from %s\n", n, r.RemoteAddr)
}

func main() {
	c := &counter{}
	mux := http.NewServeMux()
	mux.Handle("/", c)
	if err := http.ListenAndServe(":8080", mux); err != nil {
		log.Fatal(err)
	}
}
