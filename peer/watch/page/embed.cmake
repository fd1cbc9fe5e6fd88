# embed: makes a C file of the parts of the pages. cmake -D FROM=FOLDER -D TO=FILE.c -P embed.cmake
# A line @FILE@ of a page stands for that file.
function(page_read result name)
    file(READ ${FROM}/${name} text)
    foreach(part uplot/uPlot.min.css uplot/uPlot.iife.min.js style.css charts.js live.js)
        if(text MATCHES "(^|\n)@${part}@\n")
            file(READ ${FROM}/${part} inner)
            string(REPLACE "@${part}@\n" "${inner}\n" text "${text}")
        endif()
    endforeach()
    set(${result} "${text}" PARENT_SCOPE)
endfunction()

# Bytes as numbers: a string literal of this length is more than every compiler has to take.
function(page_add name text)
    string(HEX "${text}" hex)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
    file(APPEND ${TO} "const char page_${name}[] = {${bytes}0};\n")
endfunction()

file(WRITE ${TO} "#include \"peer/watch/page/page.h\"\n\n")
page_read(live live.html)
page_add(live "${live}")
file(READ ${FROM}/style.css style)
file(READ ${FROM}/uplot/uPlot.min.css plot_style)
page_add(style "${plot_style}\n${style}")
file(READ ${FROM}/charts.js charts)
file(READ ${FROM}/uplot/uPlot.iife.min.js plot)
page_add(charts "${plot}\n${charts}")
