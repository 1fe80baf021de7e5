def write_page():
    print("page later")
